"""S04 (isolate 2.6, moby #46762)"""

from adversarial.case import NO_FILTER, Case, main


class S04(Case):
    """A ring of io_uring is set up, through which calls are made that no filter sees."""

    control = NO_FILTER
    control_opens = {"set up"}
    verdicts = {"set up": "ENOSYS", "enter": "ENOSYS", "register": "ENOSYS"}

    def program(self):
        return """
            import ctypes
            parameters = ctypes.create_string_buffer(120)
            say({"set up": syscall(425, 2, ctypes.byref(parameters)), "enter": syscall(426, -1, 1, 0, 0, 0, 0),
                 "register": syscall(427, -1, 0, 0, 0)})
        """


if __name__ == "__main__":
    main()

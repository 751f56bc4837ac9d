"""S07 ("shocker", and many)"""

from adversarial.case import NO_FILTER, Case, main


class S07(Case):
    """bpf, perf, tracing, another's memory or descriptors, a file by its handle, the clock, a time namespace."""

    control = NO_FILTER
    control_opens = {"trace itself", "read own memory by number", "compare processes", "take own descriptor"}

    def program(self):
        return """
            import ctypes
            X86 = os.uname().machine == "x86_64"
            def number(x86, arm): return x86 if X86 else arm
            me, buffer = os.getpid(), ctypes.create_string_buffer(8)
            here = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
            def memory(call): return syscall(call, me, ctypes.byref(here), 1, ctypes.byref(here), 1, 0)
            handle = ctypes.create_string_buffer(b"\\x08\\0\\0\\0\\x01\\0\\0\\0\\x02" + bytes(32), 64)
            perf = ctypes.create_string_buffer(b"\\x01\\0\\0\\0\\x70\\0\\0\\0" + bytes(112), 120)  # A software clock.
            say({"bpf": syscall(number(321, 280), 0, ctypes.byref(buffer), 8),
                 "perf": syscall(number(298, 241), ctypes.byref(perf), 0, -1, -1, 0),
                 "trace itself": in_child(lambda: syscall(number(101, 117), 0, 0, 0, 0)),
                 "read own memory by number": memory(number(310, 270)), "write it": memory(number(311, 271)),
                 "compare processes": syscall(number(312, 272), me, me, 0, 0, 0),
                 "take own descriptor": syscall(438, os.pidfd_open(me), 0, 0),
                 "advise another's memory": syscall(440, os.pidfd_open(me), ctypes.byref(here), 1, 20, 0),
                 "open by handle": syscall(number(304, 265), -100, ctypes.byref(handle), 0),
                 "set the clock": syscall(number(227, 112), 0, 0),
                 "make a time namespace": in_child(lambda: call("unshare", 0x80)),
                 "watch a file system": syscall(number(300, 262), 0, 0)})
        """

    verdicts = dict.fromkeys(
        ("bpf", "perf", "trace itself", "read own memory by number", "write it", "compare processes",
         "take own descriptor", "advise another's memory", "open by handle", "set the clock",
         "make a time namespace", "watch a file system"), "EPERM")


if __name__ == "__main__":
    main()

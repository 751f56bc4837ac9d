"""S06 (what widens races in kernel exploits)"""

from adversarial.case import NO_FILTER, Case, main


class S06(Case):
    """userfaultfd, which holds kernel code at a fault for as long as one likes, is had, in its user mode too."""

    control = NO_FILTER
    control_opens = {"user mode only"}
    verdicts = {"full": "ENOSYS", "user mode only": "ENOSYS"}

    def program(self):
        return """
            number = 323 if os.uname().machine == "x86_64" else 282
            say({"full": syscall(number, 0), "user mode only": syscall(number, 1)})
        """


if __name__ == "__main__":
    main()

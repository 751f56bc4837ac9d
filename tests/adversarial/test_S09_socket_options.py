"""S09 (kernel TLS and espintcp, Dirty Pipe CVE-2022-0847, Copy Fail)"""

from adversarial.case import NO_FILTER, Case, main


class S09(Case):
    """A socket option loads kernel code or attaches a program, or user pages are moved into a pipe."""

    control = NO_FILTER
    control_opens = {"user pages into a pipe"}

    def program(self):
        return """
            import ctypes
            TCP_ULP, SO_ATTACH_BPF = 31, 50
            VMSPLICE = 278 if os.uname().machine == "x86_64" else 75
            tcp = socket.socket()
            read, write = os.pipe()
            text = ctypes.create_string_buffer(b"x", 8)
            vector = (ctypes.c_uint64 * 2)(ctypes.addressof(text), 1)
            def reached(answer):
                # Answers of code that was reached: the option was taken up, and something else was missing.
                return "open" if answer in ("ENOTCONN", "EBADF", "ENOENT") else answer
            doors = {f"TCP_ULP {name}": reached(attempt(tcp.setsockopt, socket.SOL_TCP, TCP_ULP, name.encode()))
                     for name in ("tls", "espintcp", "smc", "mptcp")}
            doors["attach a BPF program"] = reached(attempt(tcp.setsockopt, socket.SOL_SOCKET, SO_ATTACH_BPF, -1))
            doors["user pages into a pipe"] = syscall(VMSPLICE, write, ctypes.byref(vector), 1, 0)
            say(doors)
        """


if __name__ == "__main__":
    main()

"""C04 (CVE-2022-0185, CVE-2023-32233, CVE-2024-1086, flatpak CVE-2021-41133)"""

from adversarial.case import NO_FILTER, Case, main


class C04(Case):
    """A user namespace, or any other, is made or joined from inside, which opens what is else root's."""

    control = {**NO_FILTER, "namespaces": {"nested_user": True}}
    control_opens = {"unshare user", "clone user", "unshare user and net, then a raw socket"}

    def variants(self):
        """With the filter, and by the namespace's own limit alone."""
        return [{}, NO_FILTER]

    def program(self):
        return """
            KINDS = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
                     "pid": 0x20000000, "net": 0x40000000, "time": 0x80}
            CLONE = 56 if os.uname().machine == "x86_64" else 220
            import ctypes
            def unshare(flags): return in_child(lambda: call("unshare", flags))
            def clone(flags):
                child = libc().syscall(ctypes.c_long(CLONE), ctypes.c_long(flags | signal.SIGCHLD), 0, 0, 0, 0)
                if child == 0: os._exit(0)
                if child < 0: return errno.errorcode[ctypes.get_errno()]
                os.waitpid(child, 0)
                return "open"
            def raw_socket():
                if libc().unshare(KINDS["user"] | KINDS["net"]) != 0: return errno.errorcode[ctypes.get_errno()]
                return attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
            doors = {f"unshare {kind}": unshare(flag) for kind, flag in KINDS.items()}
            doors |= {f"clone {kind}": clone(flag) for kind, flag in KINDS.items() if kind != "time"}
            doors["clone3 user"] = in_child(lambda: clone3(KINDS["user"]))
            doors["unshare user and net, then a raw socket"] = in_child(raw_socket)
            for kind in ("user", "mnt", "net", "pid_for_children"):
                try: namespace = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
                except OSError: continue
                doors[f"setns {kind}"] = in_child(lambda: call("setns", namespace, 0))
            say(doors)
        """


if __name__ == "__main__":
    main()

"""S10 (what nsjail and firejail teach, OpenShell #585)"""

from adversarial.case import NO_FILTER, Case, main


class S10(Case):
    """A thread, a child, or a command with another network, terminal or uid runs without the filter."""

    control = NO_FILTER

    def variants(self):
        return [{}, {"network": {"mode": "shared"}}, {"io": {"tty": "new"}}, {"syscalls": None},
                {"identity": {"inside_uid": 0, "inside_gid": 0}}, {"capabilities": ["SYS_ADMIN"]},
                {"syscalls": {"base": "strict@1"}}]

    def program(self):
        return """
            import subprocess, threading
            threads = [threading.Thread(target=time.sleep, args=(30,), daemon=True) for _ in range(3)]
            for thread in threads: thread.start()
            def filtered(text): return "filtered" if "Seccomp:\\t2" in text else "open"
            doors = {}
            for number, task in enumerate(sorted(os.listdir("/proc/self/task"))):
                with open(f"/proc/self/task/{task}/status") as file: doors[f"thread {number}"] = filtered(file.read())
            doors["a child"] = in_child(lambda: filtered(open("/proc/self/status").read()))
            doors["a program"] = filtered(subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout)
            doors["a grandchild"] = filtered(subprocess.run(["sh", "-c", "(cat /proc/self/status)"], capture_output=True,
                                                            text=True).stdout)
            doors["what it forbids"] = in_child(lambda: call("unshare", 0))
            say(doors)
        """

    def check_with_the_control_off_the_attack_succeeds(self):
        """Where the back end itself is made by a filter, only what ours forbids tells the difference."""
        doors = self.attack_with_control_off()
        self.assertEqual(doors["what it forbids"], "open", doors)
        if self.back_end == "modern":
            self.assertEqual(set(doors.values()), {"open"}, doors)


if __name__ == "__main__":
    main()

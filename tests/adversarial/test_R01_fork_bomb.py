"""R01 (fork bombs of processes and of threads)"""

from adversarial.case import Case, main

LIMIT = 20


class R01(Case):
    """The command makes processes, or threads, beyond its number."""

    policy_changes = {"limits": {"rlimits": {"nproc": LIMIT}}}
    control = {"limits": {"rlimits": None}}
    control_opens = {"processes", "threads"}

    def program(self):
        return f"""
            import threading
            def processes():
                for _ in range({3 * LIMIT}):
                    if os.fork() == 0: signal.pause()
            def threads():
                for _ in range({3 * LIMIT}):
                    try: threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
                    except RuntimeError: raise OSError(errno.EAGAIN, "no thread") from None
            threading.stack_size(1 << 16)
            def in_group(function):
                # Its processes end with it, so that the next begins with none.
                def body():
                    os.setpgid(0, 0)
                    answer = attempt(function)
                    os.write(write, answer.encode())
                    os.killpg(0, signal.SIGKILL)
                read, write = os.pipe()
                child = os.fork() or body()
                os.waitpid(child, 0)
                return os.read(read, 64).decode()
            answers = {{"threads": in_group(threads)}}
            answers["processes"] = in_group(processes)
            say(answers)
        """


if __name__ == "__main__":
    main()

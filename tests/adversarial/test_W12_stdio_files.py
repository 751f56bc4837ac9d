"""W12 (measured: a job truncated the log that it had as its output)

`belljar run` hands the caller's own streams over, as any command has them. With limits.output the command has
a pipe instead, and this case is about that.
"""

import json

from adversarial.case import Case, main

LOG = "what was logged before\n"


class W12(Case):
    """The command empties, reopens or rewinds the host's file that its output goes to."""

    policy_changes = {"limits": {"output": "1MiB"}}
    control = {"limits": {"output": None}}
    control_opens = {"truncate", "reopen and truncate"}

    def program(self):
        return f"""
            import fcntl
            doors = {{}}
            doors["truncate"] = attempt(os.ftruncate, 1, 0)
            doors["rewind"] = attempt(os.lseek, 1, 0, os.SEEK_SET)
            # A pipe can be opened again, and is a pipe still.
            flags = os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK
            try: again = os.open("/proc/self/fd/1", flags)
            except OSError as error: doors["reopen and truncate"] = errno.errorcode[error.errno]
            else: doors["reopen and truncate"] = attempt(os.ftruncate, again, 0)
            doors["the host's file"] = "open" if os.readlink("/proc/self/fd/1").endswith("log") else "a pipe"
            with open("{self.work}/doors", "w") as file: json.dump(doors, file)
        """

    def attack(self, changes, **more):
        log = self.make_file("log", LOG, owner=self.uid)
        run = self.inside(self.program(), policy=changes, wrap=["sh", "-c", f'exec "$@" >>{log}', "sh"])
        self.check_exited(run)
        return self.doors(log)

    def doors(self, log):
        doors = json.loads((self.work / "doors").read_text())
        return {**doors, "the log": "as before" if log.read_text().startswith(LOG) else "open"}

    def under_bubblewrap(self, way, **more):
        self.inside_bubblewrap = True
        log = self.make_file("log", LOG, owner=self.uid)
        with open(log, "a") as output:
            super().under_bubblewrap(way, stdout=output)
        return self.doors(log)


if __name__ == "__main__":
    main()

"""L03 (runc CVE-2024-21626, boxsh #1)"""

import os

from adversarial.case import HostileLaunch, bind, main

LOOK = """
    doors = {"outside": "open" if not os.getcwd().startswith("/") else "inside"}
    doors["another than asked for"] = "open" if os.getcwd() != ASKED else "as asked"
    doors["marker"] = probe_open("marker")
    doors["../marker"] = probe_open("../marker")
    say(doors)
"""


class L03(HostileLaunch):
    """The working directory is one outside the root: by descriptor, by magic link, deleted, or through a link."""

    control_opens = {"bound: marker"}
    bubblewrap = True

    def prepare(self):
        self.hidden = self.make_directory("hidden", owner=self.uid)
        self.make_file("hidden/marker", owner=self.uid)
        self.number = os.open(self.hidden, os.O_RDONLY)
        self.addCleanup(os.close, self.number)

    def program(self):
        return LOOK.replace("ASKED", "os.getcwd()")

    def at(self, directory, name=None, **more):
        """The doors of a command that is asked to start there."""
        options = ["--workdir", directory] if directory else []
        run = self.inside(LOOK.replace("ASKED", repr(str(directory or self.work))), options=options, fds=[self.number], **more)
        if run.code == 125:
            self.check_refused(run)
            return {f"{name or directory}": "refused"}
        self.check_exited(run)
        return {f"{name or directory}: {door}": answer for door, answer in run.json().items()}

    def attempts(self):
        self.make_link("work/up", "../hidden", owner=self.uid)
        self.make_link("work/magic", "/proc/self/cwd", owner=self.uid)
        doors = {}
        for directory in (f"/proc/self/fd/{self.number}", "/proc/self/cwd", "/proc/1/cwd", f"{self.work}/up",
                          f"{self.work}/../hidden", str(self.hidden)):
            doors |= self.at(directory, directory.replace(str(self.dir), "DIR"))
        gone = self.make_directory("gone", owner=self.uid)
        remove = ["sh", "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "sh"]
        doors |= self.at(None, "a deleted one of belljar's", wrap=remove)
        return doors | self.at(None, "a hidden one of belljar's", cwd=self.hidden)

    def control_attempts(self):
        return self.at("/shown", "bound", policy={"filesystem": {"mounts": {"/shown": bind(self.hidden)}}})

    def bubblewrap_options(self):
        return ["--tmpfs", self.hidden, "--chdir", f"/proc/self/fd/{self.number}"]

    def under_bubblewrap(self, way, **more):
        return super().under_bubblewrap(way, pass_fds=[self.number])


if __name__ == "__main__":
    main()

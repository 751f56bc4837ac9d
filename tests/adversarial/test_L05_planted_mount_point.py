"""L05 (bubblewrap CVE-2026-87766, runc CVE-2021-30465 and CVE-2024-45310, nsjail #292)"""

import os
import subprocess

from adversarial.case import HostileLaunch, bind, bubblewrap_command, environment, main


class L05(HostileLaunch):
    """A link that one run planted makes the next launch mount, or make, a thing outside the workspace."""

    control_opens = {"a directory: tmpfs", "a directory: dir"}
    bubblewrap = True

    def prepare(self):
        self.target = self.make_directory("target", owner=self.uid)
        self.make_file("target/there", owner=self.uid)
        self.before = self.look()

    def look(self):
        return sorted(os.listdir(self.target)), os.stat(self.target).st_mtime_ns

    def launch(self, kind):
        """Whether a launch makes this mount below work/link."""
        mount = {"tmpfs": {"type": "tmpfs"}, "dir": {"type": "tmpfs"}, "bind": bind(self.work),
                 "dev": {"type": "dev"}}[kind]
        where = f"{self.work}/link" + ("/there" if kind == "dir" else "")
        return self.outcome(self.sandbox("true", policy={"filesystem": {"mounts": {where: mount}}}))

    def attempts(self):
        doors = {}
        for text in (str(self.target), "/", "..", "../target", "/proc/self/root"):
            run = self.inside(f"os.path.lexists('link') and os.unlink('link'); os.symlink({text!r}, 'link')")
            self.check_exited(run)
            name = text.replace(str(self.dir), "DIR")
            doors |= {f"link to {name}: {kind}": self.launch(kind) for kind in ("tmpfs", "dir")}
        doors["link to DIR/target: bind"] = self.launch("bind")
        doors["link to DIR/target: dev"] = self.launch("dev")
        return {**doors, "the host's directory": "as before" if self.look() == self.before else "open"}

    def control_attempts(self):
        """Where the command has made directories there is nothing to refuse."""
        self.make_directory("work/link/there", owner=self.uid)
        return {f"a directory: {kind}": self.launch(kind) for kind in ("tmpfs", "dir")}

    def under_bubblewrap(self, way, **more):
        os.symlink("/oldroot" + str(self.target), self.work / "link")
        command = bubblewrap_command(way, self.work, ["--dir", f"{self.work}/link/made"], ["true"])
        subprocess.run(command, env=environment(), cwd=self.work, capture_output=True, timeout=60)
        return {"the host's directory": "as before" if self.look() == self.before else "open"}


if __name__ == "__main__":
    main()

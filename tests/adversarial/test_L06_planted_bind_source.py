"""L06 (flatpak CVE-2024-42472 and CVE-2026-34078, podman CVE-2025-9566)"""

from adversarial.case import HostileLaunch, bind, main


class L06(HostileLaunch):
    """A link that one run planted in place of its data makes the next launch bind something else."""

    control_opens = {"a directory"}
    bubblewrap = True

    def prepare(self):
        self.hidden = self.make_directory("hidden", mode=0o700)
        self.shown = self.make_directory("hidden/shown")
        self.make_file("hidden/shown/secret", "x")

    def launch(self, source):
        run = self.inside("say(os.listdir('/data'))", policy={"filesystem": {"mounts": {"/data": bind(source)}}})
        return self.outcome(run)

    def attempts(self):
        doors = {}
        for text in (str(self.shown), "../hidden/shown", "/proc/self/root", "/proc/1/root/etc", "/dev", "/"):
            run = self.inside(f"os.path.lexists('data') and os.unlink('data'); os.symlink({text!r}, 'data')")
            self.check_exited(run)
            doors["link to " + text.replace(str(self.dir), "DIR")] = self.launch(self.work / "data")
        doors["below a link"] = self.launch(self.work / "data/usr")
        return doors

    def control_attempts(self):
        self.make_directory("work/data", owner=self.uid)
        return {"a directory": self.launch(self.work / "data")}

    def program(self):
        return "say({'the secret': attempt(lambda: open('/tmp/data/secret').close())})"

    def bubblewrap_options(self):
        link = self.work / "data"
        link.is_symlink() or link.symlink_to(self.shown)
        return ["--ro-bind", link, "/tmp/data"]

    def under_bubblewrap(self, way, **more):
        return super().under_bubblewrap(way) or {"the secret": "refused"}


if __name__ == "__main__":
    main()

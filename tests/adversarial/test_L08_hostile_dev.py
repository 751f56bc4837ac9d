"""L08 (runc CVE-2025-31133 and CVE-2025-52565, crun CVE-2026-47766)"""

from adversarial.case import HostileLaunch, bind, main


class L08(HostileLaunch):
    """The root image brings a /dev of its own: a link, or nodes that are links to a file which is then written."""

    control_opens = {"/dev/null"}

    def prepare(self):
        """An image of the session's, with a file that hostile nodes lead to."""
        self.image = self.make_directory("image", owner=self.uid)
        for name in ("usr", "lib", "lib64", "bin", "tools", "tmp", "proc"):
            self.make_directory(f"image/{name}", owner=self.uid)
        self.victim = self.make_file("image/victim", "untouched", owner=self.uid)

    def plant(self, as_link):
        if as_link:
            self.make_link("image/dev", "/victim", owner=self.uid)
            return
        self.make_directory("image/dev", owner=self.uid)
        for name in ("null", "zero", "console", "ptmx", "tty", "shm", "pts"):
            self.make_link(f"image/dev/{name}", "/victim", owner=self.uid)

    def look(self, dev):
        """The doors of a command whose root is the image, with a /dev of ours or its own."""
        mounts = {"/": bind(self.image, readonly=False), "/usr": bind("/usr"), "/lib": bind("/usr/lib"),
                  "/lib64": bind("/usr/lib64"), "/bin": bind("/usr/bin"), "/tools": bind(self.tool("")),
                  "/belljar": None, "/tmp": None, "/proc": None, "/dev": dev}
        code = """
            import stat
            doors = {}
            for name in ("null", "zero", "tty", "ptmx", "console"):
                try: os.write(os.open(f"/dev/{name}", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK), b"hostile")
                except OSError: pass
                with open("/victim") as file: touched = file.read() != "untouched"
                with open("/victim", "w") as file: file.write("untouched")
                doors[f"/dev/{name}"] = "open" if touched else "no link of the image's"
            say(doors)
        """
        run = self.inside(code, policy={"filesystem": {"workspace": None, "mounts": mounts}})
        if run.code == 125:
            self.check_refused(run)
            return {"the launch": "refused"}
        self.check_exited(run)
        return run.json()

    def attempts(self):
        self.plant(as_link=False)
        doors = self.look({"type": "dev"})
        self.assertIn("/dev/null", doors)
        for path in (self.image / "dev").iterdir():
            path.unlink()
        (self.image / "dev").rmdir()
        self.plant(as_link=True)
        return {**doors, **{f"with /dev a link: {name}": answer for name, answer in self.look({"type": "dev"}).items()}}

    def control_attempts(self):
        self.plant(as_link=False)
        return self.look(None)


if __name__ == "__main__":
    main()

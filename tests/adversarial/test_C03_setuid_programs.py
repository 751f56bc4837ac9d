"""C03 (setuid programs and file capabilities in view)"""

import os
import shutil

from adversarial.case import Case, bind, main


class C03(Case):
    """A setuid or setgid program is run: the host's own, and a planted one on a mount without nosuid."""

    root_prepares = True
    control_opens = {"no_new_privs"}
    callers_of_control = ("root",)
    back_ends_of_control = ("modern",)

    def prepare(self):
        planted = self.make_directory("planted")
        shutil.copy(self.tool("setuid_probe"), planted / "probe")
        os.chmod(planted / "probe", 0o6755)
        self.policy_changes = {"filesystem": {"mounts": {"/planted": bind(planted, nosuid=False)}}}

    def program(self):
        planted = str(self.dir / "planted") if self.inside_bubblewrap else "/planted"
        return f"""
            import glob, stat, subprocess
            NO_NEW_PRIVS = 39
            said = subprocess.run(["{planted}/probe"], capture_output=True, text=True).stdout.split()
            doors = {{"planted": "open" if said[:3] != [str(os.getuid())] * 3 or int(said[3], 16) else "no gain",
                     "no_new_privs": "set" if libc().prctl(NO_NEW_PRIVS, 0, 0, 0, 0) == 1 else "open"}}
            def effective(path):
                # su and its like read their standard input; the child is looked at while it runs or has failed.
                child = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, start_new_session=True)
                try: uids = status(child.pid)["Uid"].split()
                except OSError: uids = [str(os.getuid())] * 4
                child.kill()
                child.wait()
                return "open" if set(uids) != {{str(os.getuid())}} else "no gain"
            for name in ("su", "passwd", "mount", "newgrp", "chsh"):
                path = "/usr/bin/" + name
                if os.path.exists(path) and os.stat(path).st_mode & stat.S_ISUID: doors[path] = effective(path)
            say(doors)
        """

    def test_with_the_control_off_the_attack_succeeds(self):
        """On the host, as the session's uid: the same program, and no_new_privs is not set."""
        doors = self.on_this_host(self.program().replace("/planted", f"{self.dir}/planted"), uid=self.uid)
        self.assertLessEqual({"planted", "no_new_privs"}, {name for name, answer in doors.items() if answer == "open"})


if __name__ == "__main__":
    main()

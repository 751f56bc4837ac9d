"""L13 (flatpak CVE-2024-32462)"""

import json
import os

from adversarial.case import HostileLaunch, main

WORDS = ["--network=shared", "--", "-", "--bind", "--policy", "a\nb", "%s%n%n", "$(touch x)", "`x`", "", "-v/:/h", "\x01é"]


class L13(HostileLaunch):
    """A command, an argument or a directory that looks like an option is taken as one."""

    control_opens = {"before the --"}

    def prepare(self):
        self.script = self.make_file("work/-vlook", "#!/usr/bin/python3 -SE\nimport json, sys\nprint(json.dumps(sys.argv))\n",
                                     owner=self.uid, mode=0o755)

    def attempts(self):
        run = self.sandbox(str(self.script), *WORDS)
        self.check_exited(run)
        doors = {"arguments": "data" if json.loads(run.out) == [str(self.script), *WORDS] else "open"}
        for name in ("--network=shared", "--help", "-v", "--record=/tmp/x", "%s%s"):
            run = self.sandbox(name)
            doors[f"a command {name}"] = "data" if (run.code, name in run.err) == (127, True) else "open"
            run = self.sandbox("true", options=["--workdir", name])
            doors[f"a directory {name}"] = "data" if run.code == 125 and name in run.err else "open"
        return doors

    def control_attempts(self):
        """The same word is an option where options stand."""
        run = self.inside("say(os.readlink('/proc/self/ns/net'))", options=["--network=shared"])
        return {"before the --": "open" if run.json() == os.readlink("/proc/self/ns/net") else "data"}


if __name__ == "__main__":
    main()

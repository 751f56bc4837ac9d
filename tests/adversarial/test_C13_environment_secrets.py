"""C13 (buildah CVE-2021-3602)"""

from adversarial.case import Case, environment, main

SECRET = "s3cr3t-that-nobody-may-see"


class C13(Case):
    """A secret of the caller's environment is found in the command's, in init's, or in any other file of /proc."""

    control = {"env": {"pass": ["API_TOKEN"]}}
    control_opens = {"own environment", "self/environ"}

    def program(self):
        # The parts are joined inside, so that the program's own arguments do not hold it.
        first, last = SECRET[:10], SECRET[10:]
        return f"""
            secret = ("{first}" + "{last}").encode()
            doors = {{"own environment": "open" if secret in repr(os.environ).encode() else "not there"}}
            for process in ["self", *filter(str.isdigit, os.listdir("/proc"))]:
                for name in ("environ", "cmdline", "auxv", "maps", "comm"):
                    try:
                        with open(f"/proc/{{process}}/{{name}}", "rb") as file: found = secret in file.read()
                        answer = "open" if found else "not there"
                    except OSError as error: answer = errno.errorcode[error.errno]
                    doors[f"{{process}}/{{name}}"] = answer
            say(doors)
        """

    def attack(self, changes, **more):
        return super().attack(changes, env=environment(API_TOKEN=SECRET), **more)

    def bubblewrap_options(self):
        return ["--clearenv", "--setenv", "PATH", "/usr/bin:/bin"]

    def under_bubblewrap(self, way, **more):
        return super().under_bubblewrap(way, env=environment(API_TOKEN=SECRET))


if __name__ == "__main__":
    main()

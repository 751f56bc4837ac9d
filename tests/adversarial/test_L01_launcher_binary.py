"""L01 (runc CVE-2019-5736, firejail CVE-2019-12499)"""

from adversarial.case import BELLJAR, Case, bind, main


class L01(Case):
    """The launcher's program is overwritten from inside, through /proc/N/exe of every process."""

    control_opens = {"/belljar"}

    def prepare(self):
        copy = self.make_file("copy", "a program", mode=0o777)
        self.control = {"filesystem": {"mounts": {"/belljar": bind(copy, readonly=False)}}}
        before = self.look()
        self.addCleanup(lambda: self.assertEqual(self.look(), before))

    def look(self):
        """No write goes without a new time of change."""
        about = BELLJAR.stat()
        return about.st_size, about.st_mtime_ns, about.st_ctime_ns

    def program(self):
        # That the running image alone held it (ETXTBSY) is no protection: it ends.
        image = str(BELLJAR) if self.inside_bubblewrap else "/belljar"
        return f"""
            def overwrite(path):
                answers = [probe_open(path, os.O_WRONLY)]
                try: answers.append(probe_open(f"/proc/self/fd/{{os.open(path, os.O_PATH)}}", os.O_WRONLY))
                except OSError: pass
                return "open" if {{"open", "ETXTBSY"}} & set(answers) else answers[0]
            names = ["self", "thread-self", *filter(str.isdigit, os.listdir("/proc"))]
            doors = {{f"/proc/{{name}}/exe": overwrite(f"/proc/{{name}}/exe") for name in names}}
            with open("/tmp/again" if os.access("/tmp", os.W_OK) else "again", "w") as script:
                script.write("#!/proc/self/exe\\n" + "import os\\ntry: os.open('/proc/self/exe', os.O_WRONLY)\\n"
                             "except OSError as error: os._exit(error.errno)\\nos._exit(0)\\n")
            os.chmod(script.name, 0o755)
            child = os.fork() or os.execv(script.name, ["again"])
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            say({{**doors, "its own interpreter": errno.errorcode.get(code, "open"), "{image}": overwrite("{image}")}})
        """


if __name__ == "__main__":
    main()

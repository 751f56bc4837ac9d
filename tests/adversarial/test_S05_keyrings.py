"""S05 (isolate 2.4, flag 1)"""

from adversarial.case import NO_FILTER, PYTHON_INSIDE, Case, main

# Joins a fresh session keyring, puts a key into it, and executes the rest.
PUT_KEYS = """
import ctypes, os, sys
X86 = os.uname().machine == "x86_64"
ADD, CTL = (248, 250) if X86 else (217, 219)
library = ctypes.CDLL(None)
library.syscall(ctypes.c_long(CTL), 1, None)
library.syscall(ctypes.c_long(ADD), b"user", b"belljar-test", b"secret", ctypes.c_size_t(6), ctypes.c_long(-3))
os.execvp(sys.argv[1], sys.argv[1:])
"""


class S05(Case):
    """A key that the caller or another sandbox holds is found in a keyring, or one is left there."""

    # /proc/keys names what a key's owner may look at; the presets mask it so.
    policy_changes = {"filesystem": {"mask": {"/proc/keys": "names keys of the uid"}}}
    control_opens = {"search the session's"}

    def prepare(self):
        self.wrap = [PYTHON_INSIDE, "-c", PUT_KEYS]

    def variants(self):
        """By the filter; and by the fresh keyring and the own user namespace alone."""
        return [self.policy_changes, {**self.policy_changes, **NO_FILTER}]

    def program(self):
        return """
            import ctypes
            CTL, JOIN, SEARCH, SESSION, USER, USER_SESSION = 250 if os.uname().machine == "x86_64" else 219, 1, 10, -3, -4, -5
            def search(ring):
                return syscall(CTL, SEARCH, ring, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"belljar-test"), 0)
            listed = "ENOENT"
            try:
                with open("/proc/keys") as file: listed = "open" if "belljar-test" in file.read() else "not there"
            except OSError as error: listed = errno.errorcode[error.errno]
            say({"search the session's": search(SESSION), "search the user's": search(USER),
                 "search the user session's": search(USER_SESSION), "/proc/keys": listed})
        """

    def attack(self, changes, **more):
        return super().attack(changes, wrap=self.wrap, **more)

    def attack_with_control_off(self):
        return self.on_this_host(self.program(), before=self.wrap)

    def under_bubblewrap(self, way, **more):
        return super().under_bubblewrap(way, before=self.wrap)


if __name__ == "__main__":
    main()

"""C01 (crun CVE-2022-27650, podman CVE-2022-27649, moby CVE-2022-24769)"""

from adversarial.case import Case, main


class C01(Case):
    """The command, a child of it, or init keeps a capability in any of the five sets, or could get one back."""

    control = {"capabilities": ["NET_RAW"]}
    control_opens = {"CapEff", "CapPrm", "CapBnd"}

    def program(self):
        # Every bit but the keep_caps ones, which are without effect: noroot, no_setuid_fixup, no ambient, and locks.
        return """
            SECUREBITS, PR_GET_SECUREBITS, PR_CAPBSET_READ = 0xef, 27, 23
            def held(who, prefix):
                return {prefix + name: "open" if int(status(who)[name], 16) else "empty"
                        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
            def in_init():
                try: return held("1", "init's ")
                except OSError as error: return {"init's": errno.errorcode[error.errno]}
            securebits = libc().prctl(PR_GET_SECUREBITS, 0, 0, 0, 0)
            say({**held("self", ""), **in_child(lambda: held("self", "a child's ")), **in_init(),
                 "no_new_privs": "set" if status()["NoNewPrivs"] == "1" else "open",
                 "securebits": "locked" if securebits & SECUREBITS == SECUREBITS else "open",
                 "a set taken back": attempt_to_raise()})
        """.replace("attempt_to_raise()", "call('prctl', 47, 2, 12, 0, 0)")


if __name__ == "__main__":
    main()

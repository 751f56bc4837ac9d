"""Capabilities and no_new_privs: none but what the policy names, and no exec gives more."""

import pathlib

from harness import AS_ROOT, SandboxTest, descendants, main

NONE = "0" * 16
SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
NET_BIND_SERVICE, NET_RAW = 1 << 10, 1 << 13
BIND_80 = "s = socket.socket(); say(attempt(s.bind, ('127.0.0.1', 80)))"
SECBITS = 0b1110_1111  # NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE and all four locks.


def outside(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in text.splitlines())}


class Capabilities(SandboxTest):

    def test_the_payload_has_no_capabilities(self):
        for policy in ({}, {"identity": {"inside_uid": 0, "inside_gid": 0}}):
            run = self.inside("say(status())", policy=policy)
            self.check_exited(run)
            self.assertEqual([run.json()[name] for name in SETS], [NONE] * 5)

    def test_init_has_no_capabilities(self):
        running = self.start_sandbox("sleep", "30", status=True)
        status = outside(running.wait_until_started())
        self.assertEqual([status[name] for name in SETS], [NONE] * 5)

    def test_init_has_none_to_use_when_the_policy_names_some(self):
        running = self.start_sandbox("sleep", "30", status=True, policy={"capabilities": ["NET_RAW"]})
        init = running.wait_until_started()
        self.assertEqual(outside(init)["CapEff"], NONE)
        self.assertEqual(int(outside(descendants(init)[0][0])["CapEff"], 16), NET_RAW)

    def test_named_capabilities_are_had_in_all_five_sets_and_no_others(self):
        run = self.inside("say(status())", policy={"capabilities": ["CAP_NET_RAW", "net_bind_service"]})
        self.check_exited(run)
        self.assertEqual([int(run.json()[name], 16) for name in SETS], [NET_RAW | NET_BIND_SERVICE] * 5)

    def test_port_80_cannot_be_bound_without_the_capability_and_can_with_it(self):
        self.assertEqual(self.inside(BIND_80).json(), "EACCES")
        self.assertEqual(self.inside(BIND_80, policy={"capabilities": ["NET_BIND_SERVICE"]}).json(), "open")

    def test_capabilities_end_at_the_sandbox(self):
        secret = self.make_file("secret", "x", owner=0, mode=0o600)
        run = self.inside("say([probe_open('/secret'), attempt(os.setresuid, 1, 1, 1), attempt(os.nice, -5)])",
                          policy={"capabilities": ["DAC_OVERRIDE", "DAC_READ_SEARCH", "SETUID", "SYS_NICE"],
                                  "filesystem": {"mounts": {"/secret": {"type": "bind", "source": str(secret)}}}})
        self.check_exited(run)
        expected = "EACCES" if AS_ROOT else "open"
        self.assertEqual(run.json()[:2], [expected, "EINVAL"], str(run))

    def test_securebits_are_locked(self):
        run = self.inside("say([libc().prctl(27), call('prctl', 28, 0)])", policy={"syscalls": {"base": "none"}})
        bits, changed = run.json()
        self.assertEqual((bits & SECBITS, changed), (SECBITS, "EPERM"), bin(bits))

    def test_no_capability_can_be_raised_again(self):
        run = self.inside("""
            import ctypes
            header = (ctypes.c_uint32 * 2)(0x20080522, 0)
            data = (ctypes.c_uint32 * 6)(1 << 10, 1 << 10, 1 << 10, 0, 0, 0)
            say([call('capset', header, data), call('prctl', 47, 2, 10, 0, 0)])
        """)
        self.assertEqual(run.json(), ["EPERM", "EPERM"])


class NoNewPrivileges(SandboxTest):

    def test_no_new_privs_is_on_and_stays_on(self):
        for policy in ({}, {"syscalls": {"base": "none"}}, {"capabilities": ["SYS_ADMIN"]}):
            run = self.inside("""
                say([status()['NoNewPrivs'], call('prctl', 38, 0, 0, 0, 0), libc().prctl(39, 0, 0, 0, 0)])
            """, policy=policy)
            self.assertEqual(run.json(), ["1", "EINVAL", 1])

    def test_setuid_programs_of_the_host_gain_nothing(self):
        run = self.inside("""
            import subprocess
            say([subprocess.run(['/usr/bin/' + name], stdin=0, capture_output=True).returncode != 0
                 for name in ('su', 'passwd', 'newgrp') if os.path.exists('/usr/bin/' + name)])
        """, stdin=b"")
        self.assertNotIn(False, run.json())
        self.assertGreater(len(run.json()), 0)


if __name__ == "__main__":
    main()

"""L11 (compiler-explorer #6026, isolate's rules)"""

import os
import shutil
import stat

from adversarial.case import AS_ROOT, Case, bind, main


class L11(Case):
    """A setuid program, a program with file capabilities, or a device that lies in a bind gives power when it is used."""

    root_prepares = True
    control_opens = {"device"}

    def prepare(self):
        data = self.make_directory("data")
        for name, mode in (("setuid", 0o6755), ("capable", 0o755)):
            shutil.copy(self.tool("setuid_probe"), data / name)
            os.chmod(data / name, mode)
        if AS_ROOT:
            # cap_setuid, cap_sys_admin: permitted and effective (linux/capability.h, revision 2).
            os.setxattr(data / "capable", "security.capability",
                        bytes.fromhex("01000002" "80002000" "00000000" "00000000" "00000000"))
            os.mknod(data / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
            os.chmod(data / "device", 0o666)
        self.policy_changes = {"filesystem": {"mounts": {"/data": bind(data)}}}
        self.control = {"filesystem": {"mounts": {"/data": bind(data, nodev=False)}}}

    def program(self):
        data = str(self.dir / "data") if self.inside_bubblewrap else "/data"
        return f"""
            import subprocess
            def gained(name):
                try: said = subprocess.run(["{data}/" + name], capture_output=True, text=True).stdout.split()
                except OSError as error: return errno.errorcode[error.errno]
                return "open" if said[:3] != [str(os.getuid())] * 3 or int(said[3], 16) else "nothing gained"
            say({{"setuid program": gained("setuid"), "file capabilities": gained("capable"),
                 "device": probe_open("{data}/device")}})
        """

    def test_with_the_control_off_the_attack_succeeds(self):
        self.check_with_the_control_off_the_attack_succeeds()
        outside = self.on_this_host(self.program().replace("/data/", f"{self.dir}/data/"), uid=self.uid)
        self.assertEqual(outside["setuid program"], "open", "it gains nothing on the host either")
        self.assertEqual(outside["file capabilities"], "open", "it gains nothing on the host either")


if __name__ == "__main__":
    main()

"""A container as Docker would make it, by runc: its masks, its capabilities, its system call filter."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BELLJAR, ROOT, STAGE, remove_tree

# What Docker and podman hide and write-protect by default.
MASKED = ["/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
          "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/sys/firmware",
          "/sys/devices/virtual/powercap"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]

FIVE = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"]

# What Docker's default filter refuses to a container without further capabilities, of the calls that
# a launcher could want. Ours, written as a list of refusals: the default action allows.
REFUSED = ["acct", "add_key", "bpf", "chroot", "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen",
           "fspick", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "kcmp", "kexec_load",
           "keyctl", "mount_setattr", "move_mount", "name_to_handle_at", "open_by_handle_at", "open_tree",
           "perf_event_open", "pidfd_getfd", "quotactl", "reboot", "request_key", "setdomainname", "sethostname",
           "settimeofday", "swapon", "syslog", "userfaultfd", "vhangup"]
# What docs/hosts.md asks the operator to allow; without it Docker refuses these too.
NEEDED = ["unshare", "mount", "umount2", "pivot_root", "setns"]
NEW_NAMESPACES = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
EPERM, ENOSYS = 1, 38

PASSWD = """\
root:x:0:0:root:/root:/bin/sh
person:x:1000:1000::/home/person:/bin/sh
"""
PODMAN_SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def seccomp(allow_needed):
    """Docker's default filter, with or without the narrow addition that belljar needs."""
    def refuse(names, error, **more):
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error, **more}
    rules = [refuse(REFUSED if allow_needed else REFUSED + NEEDED, EPERM), refuse(["clone3"], ENOSYS)]
    for flag in NEW_NAMESPACES:
        test = {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}
        rules.append(refuse(["clone"], EPERM, args=[test]))
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}


def dockers_profile():
    """What Docker's default refuses to a container without further capabilities, in Docker's own form: a list of what
    is allowed, behind which everything is refused."""
    known = json.loads((ROOT / "launcher" / "seccomp" / "table.json").read_text())["sets"]["agent@1"]
    names = {*known["allow"], *known["arguments"], *(name for kind in ("eperm", "enosys") for entry in known[kind]
                                                     for name in entry["calls"])}
    allowed = sorted(names - {*REFUSED, *NEEDED, "clone", "clone3"})
    new_namespaces = {"index": 0, "value": sum(NEW_NAMESPACES), "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": EPERM,
            "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]}],
            "syscalls": [{"names": allowed, "action": "SCMP_ACT_ALLOW"},
                         {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [new_namespaces]},
                         {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}]}


def shipped_filter(name, without=()):
    """container/NAME as the engine would hand it to runc, without the calls of `without`."""
    return engine_filter(json.loads((ROOT / "container" / name).read_text()), without)


def engine_filter(profile, without=()):
    rules = []
    for rule in profile["syscalls"]:
        names = [call for call in rule["names"] if rule["action"] != "SCMP_ACT_ALLOW" or call not in without]
        if names:
            rules.append({key: value for key, value in rule.items() if key != "comment"} | {"names": names})
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile["defaultErrnoRet"],
            "architectures": [entry["architecture"] for entry in profile["archMap"]], "syscalls": rules}


def mounts(hidden_helper):
    """`hidden_helper`: a full procfs that no path leads to, for which the kernel lets others be mounted; "uncovered":
    one that a path does lead to."""
    made = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "nodev", "noexec"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
         "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
    ]
    if hidden_helper:
        made += [
            {"destination": "/hide/p", "type": "proc", "source": "proc",
             "options": ["nosuid", "nodev", "noexec", "subset=pid", "hidepid=ptraceable"]},
            {"destination": "/hide", "type": "tmpfs", "source": "tmpfs", "options": ["ro", "size=4k"]},
        ]
    if hidden_helper == "uncovered":
        del made[-1]
    return made


class Container:
    """A root directory that holds belljar and the host's /usr, and the settings to run it with. `filter` is what
    shipped_filter made, None for none at all, and otherwise an imitation of Docker's; without `masks` nothing of
    /proc is hidden or read-only (systempaths=unconfined)."""

    def __init__(self, uid=0, narrow_filter=True, hidden_helper=True, filter=..., masks=True, capabilities=FIVE):
        self.uid, self.hidden_helper, self.masks = uid, hidden_helper, masks
        self.capabilities = capabilities if uid == 0 else []
        self.filter = seccomp(narrow_filter) if filter is ... else filter
        self.bundle = pathlib.Path(tempfile.mkdtemp(prefix="container-", dir=STAGE))
        self.bundle.chmod(0o755)
        self.root = self.bundle / "rootfs"
        for name in ("dev", "etc", "hide/p", "home/person", "opt", "proc", "root", "srv", "sys", "tmp", "usr",
                     "var/tmp", "work"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink(f"/{name}"):
                (self.root / name).symlink_to(f"usr/{name}")
        (self.root / "etc" / "passwd").write_text(PASSWD)
        (self.root / "tmp").chmod(0o1777)
        (self.root / "var" / "tmp").chmod(0o1777)
        shutil.copy(BELLJAR, self.root / "belljar")

    def remove(self):
        remove_tree(self.bundle)

    def give_work_to(self, uid):
        os.chown(self.root / "work", uid, uid)

    def config(self, arguments):
        confinement = {"maskedPaths": MASKED, "readonlyPaths": READ_ONLY} if self.masks else {}
        if self.filter is not None:
            confinement["seccomp"] = self.filter
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": self.uid, "gid": self.uid},
                "args": list(map(str, arguments)),
                "env": ["PATH=/usr/local/bin:/usr/bin:/bin", f"HOME={'/root' if self.uid == 0 else '/home/person'}"],
                "cwd": "/work",
                "capabilities": {name: self.capabilities for name in ("bounding", "effective", "permitted")},
                "noNewPrivileges": True,
            },
            "root": {"path": "rootfs", "readonly": False},
            "mounts": mounts(self.hidden_helper),
            "linux": {
                "namespaces": [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")],
                **confinement,
            },
        }

    def execute(self, *arguments):
        """Runs a command as the container's only one; the answer has returncode, stdout, stderr."""
        (self.bundle / "config.json").write_text(json.dumps(self.config(arguments)))
        name = f"belljar-tests-{os.getpid()}-{self.bundle.name}"
        return subprocess.run(["runc", "--root", self.bundle / "state", "run", "--bundle", self.bundle, name],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def belljar(self, *arguments, execute=None):
        """Runs `belljar run` with a record; the answer has `record` too."""
        record = self.root / "tmp" / "record.json"
        record.unlink(missing_ok=True)
        done = (execute or self.execute)("/belljar", "run", "--record", "/tmp/record.json", *arguments)
        done.record = json.loads(record.read_text()) if record.exists() and record.stat().st_size else None
        return done

    def belljar_under_podman(self, options, *arguments):
        """The same in a container of podman's, with its own masks and filter."""
        settings = self.bundle / "containers.conf"
        settings.write_text(PODMAN_SETTINGS)
        with tempfile.TemporaryDirectory(prefix="p", dir=STAGE) as state:  # At most 50 characters.
            command = ["podman", "--root", f"{self.bundle}/store", "--runroot", state, "run", "--rm", "--network=none",
                       "--volume=/usr:/usr:ro", "--cap-drop=all", f"--cap-add={','.join(FIVE)}",
                       "--security-opt=no-new-privileges", "--workdir=/work", *options, "--rootfs", str(self.root)]

            def execute(*words):
                return subprocess.run([*command, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, timeout=60, env={**os.environ, "CONTAINERS_CONF": str(settings)})
            return self.belljar(*arguments, execute=execute)

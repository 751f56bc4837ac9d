#!/usr/bin/env python3
"""Writes container/seccomp.json and container/seccomp-narrow.json, Docker's form of the container's filter.

    python3 container/make_seccomp.py           write both
    python3 container/make_seccomp.py --check   say whether they are what would be written

The container may call what belljar's own table lets a session call (launcher/seccomp/table.json), and the few calls
with which a sandbox is built. Of the table's rules on arguments the container has those on sockets and personality;
the others are about what nobody has read, and each session's own filter has them.
Everything else is refused: with EPERM where it is known, with ENOSYS where it is newer than the table, so that
programs fall back. Both profiles keep sessions from nothing that their own filter allows.

  seccomp-narrow.json   what the launcher cannot do without. It takes its legacy back end.
  seccomp.json          the newer calls for the same ends too, which grant nothing that those do not: the kernel
                        asks for the same capability at each (tests/containers/test_seccomp_profile.py). Launches
                        are faster, and read-only mounts are made by one call.
"""

import json
import pathlib
import sys

PLACE = pathlib.Path(__file__).resolve().parent
TABLE = PLACE.parent / "launcher" / "seccomp" / "table.json"
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
NAMESPACES = {"CLONE_NEWNS": 0x00020000, "CLONE_NEWCGROUP": 0x02000000, "CLONE_NEWUTS": 0x04000000,
              "CLONE_NEWIPC": 0x08000000, "CLONE_NEWUSER": 0x10000000, "CLONE_NEWPID": 0x20000000,
              "CLONE_NEWNET": 0x40000000}
ALLOW, ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"

# AF_UNIX, AF_INET, AF_INET6, AF_NETLINK; what is above them has been a kernel hole again and again.
FAMILIES, LAST_FAMILY = [1, 2, 10, 16], 16
PERSONALITIES = {0: "PER_LINUX", 0x20000: "UNAME26", 0xFFFFFFFF: "the query"}

# Without one of these there is no sandbox, or no further command in one, or no network of its own (pasta joins it).
NEEDED = [
    ("unshare", "makes a sandbox's namespaces; without CAP_SYS_ADMIN the kernel wants a user namespace with them"),
    ("mount", "builds a sandbox's root, in a mount namespace that a user namespace owns"),
    ("umount2", "takes the container's root off again"),
    ("pivot_root", "enters a sandbox's root for good"),
    ("setns", "lets pasta enter a sandbox's network, and a policy join a namespace"),
]

# What the modern back end does the same with.
MODERN = [
    (["clone3"], "unshare's flags, and those of clone below; glibc uses it for threads"),
    (["open_tree", "move_mount", "mount_setattr"], "mount's bind, move and remount, on descriptors"),
    (["fsopen", "fsconfig", "fsmount"], "mount's new file systems, on descriptors"),
    (["sethostname"], "names a sandbox that asks for a name; the container's own takes CAP_SYS_ADMIN"),
    (["ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"],
     "debuggers in sessions whose policy allows them, and belljar --explain-denials; the kernel asks at each whether "
     "one may trace the other"),
]


def rule(names, action, because, errno=None, args=None):
    made = {"comment": because, "names": names, "action": action}
    if errno is not None:
        made["errnoRet"] = errno
    if args:
        made["args"] = args
    return made


def masked(value, of):
    return [{"index": 0, "value": of, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}]


def compared(with_value, operator="SCMP_CMP_EQ"):
    return [{"index": 0, "value": with_value, "op": operator}]


def argument_rules():
    """Socket families, and personalities."""
    rules = [rule(["socket"], ALLOW, "a family that sessions may use too", args=compared(family))
             for family in FAMILIES]
    rules.append(rule(["socket"], ERRNO, "AF_PACKET, AF_ALG, AF_VSOCK and whatever comes", EAFNOSUPPORT,
                      compared(LAST_FAMILY, "SCMP_CMP_GT")))
    rules.append(rule(["socketpair"], ALLOW, "AF_UNIX", args=compared(FAMILIES[0])))
    return rules + [rule(["personality"], ALLOW, name, args=compared(value)) for value, name in PERSONALITIES.items()]


def sessions_calls():
    """What a session may call, under whichever arguments; and what the table refuses, by reason and errno."""
    table = json.loads(TABLE.read_text())["sets"]["agent@1"]
    conditional = sorted(set(table["arguments"]) - {"clone", "socket", "socketpair", "personality"})
    refused = [(errno, entry["because"], entry["calls"]) for key, errno in (("eperm", EPERM), ("enosys", ENOSYS))
               for entry in table[key]]
    return table["allow"], conditional, refused


def profile(modern):
    allowed, conditional, refused = sessions_calls()
    rules = [rule(allowed, ALLOW, "what every program in a session may call (launcher/seccomp/table.json)"),
             rule(conditional, ALLOW, "what sessions may call under conditions, which their own filter has")]
    rules += argument_rules()
    rules += [rule([name], ALLOW, because) for name, because in NEEDED]
    given = {name for name, _ in NEEDED}
    if modern:
        rules += [rule(names, ALLOW, because) for names, because in MODERN]
        rules.append(rule(["clone"], ALLOW, "as unshare"))
        given |= {name for names, _ in MODERN for name in names}
    else:
        every = sum(NAMESPACES.values())
        rules.append(rule(["clone"], ALLOW, "processes and threads, without namespaces", args=masked(0, every)))
        rules += [rule(["clone"], ERRNO, name, EPERM, masked(flag, flag)) for name, flag in NAMESPACES.items()]
    for errno, because, names in refused:
        if left := [name for name in names if name not in given]:
            rules.append(rule(left, ERRNO, because, errno))
    # The rules that say "otherwise ENOSYS" are what the default says; libseccomp refuses to be told twice.
    rules = [made for made in rules if made.get("errnoRet") != ENOSYS]
    return {"defaultAction": ERRNO, "defaultErrnoRet": ENOSYS,
            "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
                        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []}],
            "syscalls": rules}


def text_of(made):
    """JSON with a rule's names filled into lines."""
    text = json.dumps(made, indent=1)
    out, names = [], None
    for line in text.splitlines():
        if line.strip() == '"names": [':
            names = []
        elif names is not None and line.strip() == "],":
            out.append('   "names": [')
            row = "   "
            for name in names:
                if len(row) + len(name) > 114:
                    out.append(row)
                    row = "   "
                row += " " + name
            out += [row, "   ],"]
            names = None
        elif names is not None:
            names.append(line.strip())
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def main():
    wrong = 0
    for name, modern in (("seccomp.json", True), ("seccomp-narrow.json", False)):
        text, path = text_of(profile(modern)), PLACE / name
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text() != text:
                print(f"container/{name} is stale: run python3 container/make_seccomp.py")
                wrong = 1
        else:
            path.write_text(text)
    return wrong


if __name__ == "__main__":
    sys.exit(main())

"""Fault injection: which calls a launch makes, which errors each is given, and what came of it.

A call is named by the process that makes it and by its place in that process, "1.17", because the
processes of a launch run side by side; see tests/tools/fault.c. The list of calls is taken from a
launch just before, so that a new step is covered by being there.
"""

import collections
import errno
import functools
import re
import subprocess
import time

# What a filter of the host answers, for any call; then what the call's man page knows and a launch
# can meet. A call that is not here gets OTHERS. No ENOENT: it says what there is, not that a call has
# failed, and to pass over what is not there is what masks and optional mounts are asked to do.
REFUSED = (errno.EPERM, errno.ENOSYS)
OTHERS = (errno.ENOMEM, errno.EINTR, errno.EAGAIN)
ERRORS = {
    "brk": (errno.ENOMEM,),
    "clone": (errno.EAGAIN, errno.ENOMEM, errno.EINVAL),
    "clone3": (errno.EAGAIN, errno.ENOMEM, errno.EINVAL, errno.ENOSPC, errno.EUSERS, errno.E2BIG),
    "close": (errno.EINTR, errno.EIO, errno.EBADF),
    "close_range": (errno.EMFILE, errno.EINVAL),
    "execve": (errno.EACCES, errno.ENOMEM, errno.E2BIG, errno.ETXTBSY, errno.ENOEXEC),
    "faccessat": (errno.EACCES, errno.EINVAL),
    "faccessat2": (errno.EACCES, errno.EINVAL),
    "fcntl": (errno.EAGAIN, errno.EMFILE),
    "fstatfs": (errno.EINTR, errno.EIO),
    "landlock_add_rule": (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOMEM),
    "landlock_create_ruleset": (errno.EOPNOTSUPP, errno.EINVAL, errno.EMFILE),
    "landlock_restrict_self": (errno.EOPNOTSUPP, errno.E2BIG, errno.ENOMEM),
    "mmap": (errno.ENOMEM, errno.EAGAIN),
    "mount": (errno.EINVAL, errno.EBUSY, errno.ENODEV, errno.ENOMEM, errno.EACCES),
    "mount_setattr": (errno.EINVAL, errno.EBUSY, errno.ENOMEM),
    "move_mount": (errno.EINVAL, errno.ENOMEM),
    "munmap": (errno.ENOMEM, errno.EINVAL),
    "newfstatat": (errno.EACCES, errno.ENOMEM),
    "open_tree": (errno.EMFILE, errno.ENOMEM, errno.EINVAL),
    "openat": (errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR),
    "openat2": (errno.EACCES, errno.EMFILE, errno.EAGAIN, errno.E2BIG, errno.EXDEV),
    "pivot_root": (errno.EINVAL, errno.EBUSY),
    "poll": (errno.EINTR, errno.ENOMEM),
    "ppoll": (errno.EINTR, errno.ENOMEM),
    "prctl": (errno.EINVAL, errno.EACCES),
    "pread64": (errno.EINTR, errno.EIO),
    "prlimit64": (errno.EINVAL,),
    "read": (errno.EINTR, errno.EIO, errno.EAGAIN),
    "recvmsg": (errno.EINTR, errno.EAGAIN, errno.ENOMEM, errno.ECONNRESET),
    "recvfrom": (errno.EINTR, errno.EAGAIN, errno.ECONNRESET),
    "seccomp": (errno.EINVAL, errno.ENOMEM, errno.EACCES),
    "sendto": (errno.EINTR, errno.EAGAIN, errno.ENOBUFS, errno.EPIPE),
    "sendmsg": (errno.EINTR, errno.EAGAIN, errno.ENOBUFS, errno.EPIPE),
    "setresuid": (errno.EAGAIN, errno.EINVAL),
    "socketpair": (errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    "statx": (errno.EACCES, errno.ENOMEM),
    "umount2": (errno.EBUSY, errno.EINVAL),
    "unshare": (errno.ENOMEM, errno.ENOSPC, errno.EUSERS),
    "waitid": (errno.EINTR, errno.ECHILD),
    "wait4": (errno.EINTR, errno.ECHILD),
    "write": (errno.EINTR, errno.EIO, errno.ENOSPC, errno.EPIPE),
}

# How often belljar comes round its loop depends on what has come meanwhile.
OF_THE_LOOP = {"poll", "ppoll", "recvmsg", "recvfrom", "read", "wait4", "waitid", "futex", "restart_syscall"}

SLOW = 2.0     # A launch that takes longer is looked at: does anything of it still run?
HOPELESS = 60  # Nothing takes as long, however busy the machine is.

Call = collections.namedtuple("Call", "process place name phase")


@functools.cache
def call_names():
    """number -> name, as this machine's headers have it."""
    text = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
                          capture_output=True, text=True, check=True).stdout
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", text, re.M)}


def calls_of(listing):
    """The calls of a launch, from what `fault list` has written."""
    counted, calls = collections.Counter(), []
    for line in listing.splitlines():
        process, number, phase = line.split()
        counted[process] += 1
        calls.append(Call(process, counted[process], call_names()[int(number)], phase))
    return calls


def calls_of_strace(text, program):
    """The same from `strace -f`, as process -> names in their order: an opinion of somebody else's."""
    order, calls, payload, started = [], collections.defaultdict(list), None, False
    for line in text.splitlines():
        match = re.match(r"(\d+) +(\w+)\(", line)  # Not the "<... x resumed>" of a call that was counted.
        if not match:
            continue
        process, name = match.groups()
        if not started:
            started = name == "execve" and program in line
            order = [process]
            continue
        if process == payload:
            continue
        if process not in order:
            order.append(process)
        calls[str(order.index(process))].append(name)
        if name == "execve":
            payload = process
    return dict(calls)


def errors_of(call):
    return (*REFUSED, *ERRORS.get(call.name, OTHERS))


def all_faults(calls):
    return [(call, error) for call in calls for error in errors_of(call)]


def some_faults(calls):
    """Every call once, each time with the next of its errors: the same ones in every run."""
    seen, faults = collections.Counter(), []
    for call in calls:
        errors = errors_of(call)
        faults.append((call, errors[seen[call.name] % len(errors)]))
        seen[call.name] += 1
    return faults


class Figures:
    """What a sweep has seen."""

    NAMES = ("calls", "faults", "refused", "went on", "without words", "weaker", "hangs", "leftovers", "other")

    def __init__(self, calls):
        self.count = dict.fromkeys(self.NAMES, 0)
        self.count["calls"] = len(calls)
        self.wrong = []
        self.wordless = collections.Counter()

    def add(self, verdict, call, text):
        self.count["faults"] += 1
        self.count[verdict] += 1
        if verdict == "without words":
            self.wordless[f"process {call.process}, {call.name}"] += 1
        if verdict not in ("refused", "went on", "without words"):
            self.wrong.append(f"{verdict}: process {call.process}, call {call.place}, {call.name}: {text}")


def is_stuck(processes, seconds=1.0):
    """Whether none of these processes runs or wants to. On a busy machine one that wants to may wait
    long for its turn: that is no hang."""
    end = time.monotonic() + seconds
    before = [switches(pid) for pid in processes]
    while time.monotonic() < end:
        if any(state(pid) not in "SDTtZX" for pid in processes):
            return False
        time.sleep(0.02)
    return before == [switches(pid) for pid in processes]


def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def switches(pid):
    """How often a process has slept or been put off."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return re.findall(r"ctxt_switches:\s*(\d+)", file.read())
    except OSError:
        return None

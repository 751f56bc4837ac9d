"""What test programs need inside a sandbox. Imported by the code that `SandboxTest.inside` runs."""

import errno
import json
import os
import signal
import socket
import sys
import time


def say(value):
    """Prints the one JSON value that the test reads."""
    print(json.dumps(value), flush=True)


def attempt(function, *arguments):
    """"open" when the call succeeds, otherwise the name of its errno."""
    try:
        function(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "open"


def probe_open(path, flags=os.O_RDONLY):
    """Whether a path can be opened."""
    return attempt(lambda: os.close(os.open(path, flags | os.O_NOCTTY | os.O_NONBLOCK)))


def create(path):
    """Whether a file can be created; it is removed again."""
    return attempt(lambda: (os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)), os.unlink(path)))


def status(who="self"):
    """/proc/WHO/status as a dict of strings."""
    with open(f"/proc/{who}/status") as file:
        return {key: value.strip() for key, value in (line.split(":", 1) for line in file)}


def libc():
    import ctypes
    return ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """Calls a function of libc; "open" when it does not fail, otherwise the name of its errno."""
    import ctypes
    library = libc()
    result = getattr(library, name)(*(word.encode() if isinstance(word, str) else word for word in arguments))
    return "open" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def syscall(number, *arguments):
    import ctypes
    return call("syscall", ctypes.c_long(number), *(ctypes.c_long(word) if isinstance(word, int) else word
                                                    for word in arguments))


def clone3(flags):
    """A child by clone3 that ends at once; "open", or the name of the errno. The call has no libc function."""
    import ctypes
    import signal
    arguments = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, signal.SIGCHLD)
    child = libc().syscall(ctypes.c_long(435), ctypes.byref(arguments), ctypes.c_long(88))
    if child == 0:
        os._exit(0)
    if child < 0:
        return errno.errorcode[ctypes.get_errno()]
    os.waitpid(child, 0)
    return "open"


def in_child(function):
    """Runs `function` in a forked child and answers with what it returns, or ["signal", N]."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps(function()).encode())
        os._exit(0)
    os.close(write)
    _, wait_status = os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    return json.loads(text) if text else ["signal", os.WTERMSIG(wait_status)]

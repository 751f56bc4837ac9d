"""The same agent, curious: what it tries is what builtin:agent@1 refuses. Nothing is changed."""
import ctypes
import os
import socket


def attempt(what, action):
    try:
        action()
    except OSError as error:
        print(f"  refused  {what}: {error.strerror}")
    else:
        print(f"  ALLOWED  {what}")


def system_call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


CLONE_NEWUSER = 0x10000000
attempt("write to /usr", lambda: open("/usr/planted", "w"))
attempt("read the password hashes", lambda: open("/etc/shadow").read())
attempt("list other people's files", lambda: os.listdir("/home"))
attempt("read init's memory", lambda: open("/proc/1/mem", "rb"))
attempt("create a user namespace", lambda: system_call(272, CLONE_NEWUSER))
attempt("mount a tmpfs", lambda: system_call(165, b"none", b"/tmp", b"tmpfs", 0, 0))
attempt("open a vsock socket", lambda: socket.socket(socket.AF_VSOCK))
attempt("become root", lambda: os.setuid(0))
attempt("set the host name", lambda: socket.sethostname("taken"))

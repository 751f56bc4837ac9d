"""A file system that answers, or does not: one directory that holds directories of any name, served by this process."""

import ctypes
import os
import struct
import subprocess
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
LOOKUP, FORGET, GETATTR, INIT, OPENDIR, READDIR, RELEASEDIR, BATCH_FORGET = 1, 2, 3, 26, 27, 28, 29, 42
ENOENT, ENOSYS = 2, 38


class Fuse:
    """While `silent` is set no request is answered; one for the name "never" is not in any case."""

    def __init__(self, test, at, uid):
        self.uid, self.silent, self.held, self.inodes = uid, False, [], {}
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.device},rootmode=40000,user_id={uid},group_id={uid},allow_other"
        if LIBC.mount(b"fuse", str(at).encode(), b"fuse", 6, options.encode()):
            raise OSError(ctypes.get_errno(), "mount a FUSE file system")
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        test.addCleanup(self.end, at)

    def end(self, at):
        self.answer_all()
        subprocess.run(["umount", "-l", at], check=True)
        self.thread.join(10)
        os.close(self.device)

    def answer_all(self):
        """What has waited is told that there is no such thing, and the rest is answered from now on."""
        self.silent = False
        while self.held:
            self.reply(self.held.pop(), b"", -ENOENT)

    def attributes(self, inode):
        return struct.pack("<QQQQQQIIIIIIIIII", inode, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, self.uid, self.uid, 0, 4096, 0)

    def reply(self, unique, body, error=0):
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
        except OSError:
            pass  # Who asked has been killed.

    def serve(self):
        while True:
            try:
                message = os.read(self.device, 1 << 17)
            except OSError:
                return  # Unmounted.
            _, what, unique, node = struct.unpack_from("<IIQQ", message)
            if what in (FORGET, BATCH_FORGET):
                continue
            if what != INIT and (self.silent or (what == LOOKUP and message[40:].startswith(b"never\0"))):
                self.held.append(unique)
            elif what == INIT:
                self.reply(unique, struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 0, 0, 0, 0, *[0] * 7))
            elif what == LOOKUP:
                inode = self.inodes.setdefault((node, message[40:]), len(self.inodes) + 2)
                self.reply(unique, struct.pack("<QQQQII", inode, 0, 0, 0, 0, 0) + self.attributes(inode))
            elif what == GETATTR:
                self.reply(unique, struct.pack("<QII", 0, 0, 0) + self.attributes(node))
            elif what == OPENDIR:
                self.reply(unique, struct.pack("<QII", 1, 0, 0))
            elif what in (READDIR, RELEASEDIR):
                self.reply(unique, b"")
            else:
                self.reply(unique, b"", -ENOSYS)

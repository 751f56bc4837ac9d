"""S01 (Docker's and containerd's socketcall, isolate's flag 16)

Kernels without IA32 emulation fault at int 0x80, and those without the x32 ABI know none of its calls; there the
filter's own answer is proved by the evaluator of tests/unit/seccomp, for every number of both.
"""

import os

from adversarial.case import NO_FILTER, Case, main


class S01(Case):
    """A system call is made by another entry of the kernel: int 0x80, or with the x32 bit."""

    control = NO_FILTER
    control_opens = {"the native entry"}

    def program(self):
        return """
            import ctypes, mmap
            def run(code):
                # mov eax, 20 (getpid of i386) or 39; then the entry; then ret.
                page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
                page.write(bytes.fromhex(code))
                address = ctypes.addressof(ctypes.c_char.from_buffer(page))
                return ctypes.CFUNCTYPE(ctypes.c_int)(address)()
            def answer(code):
                said = in_child(lambda: run(code))
                if isinstance(said, list): return signal.Signals(said[1]).name
                return "open" if said > 0 else errno.errorcode[-said]
            doors = {"int 0x80: getpid": answer("b814000000" "cd80" "c3"),
                     "int 0x80: socketcall": answer("b866000000" "31db" "cd80" "c3")}
            for number in (0, 1, 39, 41, 56, 57, 165, 272, 425, 512, 520, 547):
                doors[f"x32: {number}"] = in_child(lambda: syscall(0x40000000 + number, -1, 0, 0))
            NATIVE = answer("b827000000" "0f05" "c3")
            say({**doors, "the native entry": NATIVE} if CONTROL else doors)
        """.replace("CONTROL", str(self.is_control))

    is_control = False

    def attack_with_control_off(self):
        """The same machine code with the native entry: the probe can see an open door."""
        self.is_control = True
        return super().attack_with_control_off()


if os.uname().machine != "x86_64":
    del S01  # Its entries are that machine's.

if __name__ == "__main__":
    main()

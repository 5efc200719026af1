"""A host whose CPU keeps more FPU state than the one that the tests run on: with AMX it is 11008 bytes.

Run as a kernel, this starts the real one and stands between it and ptrace(2): where the kernel asks for a process's
state (NT_X86_XSTATE) it gets that of this host with zeros behind it, which is what AMX's part is in a process that
does not use it; and what the kernel sets is refused with EFAULT unless it is the whole, as xstateregs_set() in
arch/x86/kernel/fpu/regset.c does.
"""

import contextlib
import ctypes
import errno
import os
import signal
import struct
import sys
from pathlib import Path

AMX_BYTES = 11008
NT_X86_XSTATE = 0x202

TRACEME, GETREGS, SETREGS, CONT, SYSCALL, SETOPTIONS = 0, 12, 13, 7, 24, 0x4200
GETREGSET, SETREGSET = 0x4204, 0x4205
TRACE_SECCOMP, EXIT_KILL, EVENT_SECCOMP = 0x80, 0x100000, 7
SYS_PTRACE = 101
# struct user_regs_struct, by the number of the register in it
R10, RAX, ORIG_RAX, RDI = 7, 10, 15, 14

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def script(kernel: Path, size: int = AMX_BYTES) -> str:
    """Return the text of an executable that runs this kernel as on such a host."""
    return (
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport larger_host\n"
        f"larger_host.run({str(kernel)!r}, sys.argv[1:], {size})\n"
    )


def ptrace(request: int, pid: int, data: object = None) -> None:
    if libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request}")


def run(kernel: str, arguments: list[str], size: int) -> None:
    """Run the kernel as on a host that keeps `size` bytes."""
    child = os.fork()
    if child == 0:
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        _tell_of_register_sets()
        os.execv(kernel, [kernel, *arguments])
    for descriptor in range(3, 10):  # the other end of the socket must notice when the kernel dies
        with contextlib.suppress(OSError):
            os.close(descriptor)
    os.waitpid(child, 0)
    ptrace(SETOPTIONS, child, TRACE_SECCOMP | EXIT_KILL)
    ptrace(CONT, child)
    while True:
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            os._exit(os.WEXITSTATUS(status))
        if os.WIFSIGNALED(status):
            os._exit(128 + os.WTERMSIG(status))
        if status >> 8 == signal.SIGTRAP | EVENT_SECCOMP << 8:
            _register_set(child, size)
            ptrace(CONT, child)
        else:
            stopped_by = os.WSTOPSIG(status)
            ptrace(CONT, child, None if stopped_by == signal.SIGTRAP else stopped_by)


def _tell_of_register_sets() -> None:
    """Stop this process at each ptrace(2) that gets or sets the FPU's state, so that the parent can change it."""
    load, jump_if_equal, return_ = 0x20, 0x15, 0x06
    trace, allow = 0x7FF00000, 0x7FFF0000
    number, first_argument, third_argument = 0, 16, 32
    steps = [
        (load, 0, 0, number), (jump_if_equal, 0, 6, SYS_PTRACE),
        (load, 0, 0, third_argument), (jump_if_equal, 0, 4, NT_X86_XSTATE),
        (load, 0, 0, first_argument), (jump_if_equal, 1, 0, GETREGSET), (jump_if_equal, 0, 1, SETREGSET),
        (return_, 0, 0, trace), (return_, 0, 0, allow),
    ]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    no_new_privileges, seccomp, filter_ = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(seccomp, filter_, program):
        raise OSError(ctypes.get_errno(), "seccomp")


def _register_set(child: int, size: int) -> None:
    registers = _registers(child)
    request, vector = registers[RDI] & 0xFFFFFFFF, registers[R10]
    with Path(f"/proc/{child}/mem").open("r+b", buffering=0) as memory:
        memory.seek(vector)
        base, asked = struct.unpack("QQ", memory.read(16))
        refused = request == SETREGSET and asked < size
        if refused:
            registers[ORIG_RAX] = 2**64 - 1  # no system call
            _set_registers(child, registers)
        ptrace(SYSCALL, child)
        os.waitpid(child, 0)  # the system call has returned
        registers = _registers(child)
        if refused:
            registers[RAX] = 2**64 - errno.EFAULT
            _set_registers(child, registers)
        elif registers[RAX] == 0:
            given = min(asked, size)
            memory.seek(vector + 8)
            (real,) = struct.unpack("Q", memory.read(8))
            if request == GETREGSET and real < given:
                memory.seek(base + real)
                memory.write(bytes(given - real))
            memory.seek(vector + 8)
            memory.write(struct.pack("Q", given))


def _registers(child: int) -> list[int]:
    buffer = ctypes.create_string_buffer(27 * 8)
    ptrace(GETREGS, child, ctypes.addressof(buffer))
    return list(struct.unpack("27Q", buffer.raw))


def _set_registers(child: int, registers: list[int]) -> None:
    buffer = ctypes.create_string_buffer(struct.pack("27Q", *registers))
    ptrace(SETREGS, child, ctypes.addressof(buffer))

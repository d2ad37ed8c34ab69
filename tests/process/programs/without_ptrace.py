"""Run a command that may not read other processes: without_ptrace.py COMMAND [ARGUMENT ...]

Like a container whose seccomp profile lacks ptrace: the calls fail with EPERM, in the command and in all that it
starts. The exit code is 125 where this machine cannot do that.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

# linux/arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
CALLS = {"x86_64": {"ptrace": 101, "process_vm_readv": 310}, "aarch64": {"ptrace": 117, "process_vm_readv": 270}}
LOAD_NUMBER, IS_EQUAL, RETURN = 0x20, 0x15, 0x06  # of classic BPF; the number is the first word of seccomp_data
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2


def instruction(code, value, if_equal=0, if_not=0):
    return struct.pack("=HBBI", code, if_equal, if_not, value)


def forbid(numbers):
    """Let these system calls fail from now on."""
    program = [instruction(LOAD_NUMBER, 0)]
    for position, number in enumerate(numbers):
        program.append(instruction(IS_EQUAL, number, if_equal=len(numbers) - position))
    program += [instruction(RETURN, ALLOW), instruction(RETURN, ERRNO | errno.EPERM)]
    text = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("@HP", len(program), ctypes.addressof(text))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or library.prctl(PR_SET_SECCOMP, FILTER, header, 0, 0):
        sys.exit(125)


calls = CALLS.get(platform.machine())
if calls is None:
    sys.exit(125)
forbid(list(calls.values()))
os.execvp(sys.argv[1], sys.argv[1:])

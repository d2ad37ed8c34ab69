"""A file system that never answers: whoever asks it for a file waits in the kernel, and cannot be killed."""

import ctypes
import os
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.faults.fault import NotHereError

# of the kernel's protocol, include/uapi/linux/fuse.h
REQUEST = struct.Struct("IIQ")  # length, operation, number; more follows
INIT, VERSION = 26, (7, 23)
ANSWER = struct.Struct("IiQ")  # length, error, number of the request
INIT_ANSWER = struct.Struct("IIIIHHII36x")  # version, read ahead, flags, background, congestion, write size, time unit
UNMOUNTING = 30.0  # seconds


@contextmanager
def silent_disk(folder: Path) -> Iterator[None]:
    """Mount it; at the end it is taken away, and whoever waits for it goes on."""
    folder.mkdir()
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        raise NotHereError(f"/dev/fuse: {error.strerror}") from None
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"silent", bytes(folder), b"fuse", 0, options.encode()) != 0:
        os.close(device)
        raise NotHereError(f"nothing can be mounted: {os.strerror(ctypes.get_errno())}")
    reader = threading.Thread(target=_read, args=(device,), daemon=True)
    reader.start()
    try:
        yield
    finally:
        for how in ("--force", "--lazy"):  # the first ends the requests
            subprocess.run(["umount", how, folder], check=False, capture_output=True, timeout=UNMOUNTING)
        reader.join()
        os.close(device)


def _read(device: int) -> None:
    """Read requests, and answer only the first, without which there are no others."""
    while True:
        try:
            _, operation, number = REQUEST.unpack_from(os.read(device, 1 << 20))
            if operation == INIT:
                answer = INIT_ANSWER.pack(*VERSION, 1 << 16, 0, 12, 8, 1 << 17, 1)
                os.write(device, ANSWER.pack(ANSWER.size + len(answer), 0, number) + answer)
        except OSError:  # it is unmounted
            return

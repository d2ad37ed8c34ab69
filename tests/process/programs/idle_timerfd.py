import ctypes, os, struct

libc = ctypes.CDLL(None)
fd = libc.timerfd_create(1, 0)
libc.timerfd_settime(fd, 0, struct.pack("4q", 0, 0, 8, 0), None)
os.read(fd, 8)

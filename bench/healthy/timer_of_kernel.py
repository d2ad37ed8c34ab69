# waits for a timer of the kernel, as epoll sees it
import ctypes, os, select, struct

libc = ctypes.CDLL(None)
timer = libc.timerfd_create(1, 0)
libc.timerfd_settime(timer, 0, struct.pack("qqqq", 0, 0, 13, 0), None)
select.select([timer], [], [])
os.read(timer, 8)

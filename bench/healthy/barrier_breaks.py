# a barrier with a timeout that nobody else comes to
import threading

try:
    threading.Barrier(2).wait(13)
except threading.BrokenBarrierError:
    pass

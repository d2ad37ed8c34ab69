import faulthandler, threading

faulthandler.dump_traceback_later(8, exit=True)
threading.Lock().acquire()
l = threading.Lock()
l.acquire()
l.acquire()

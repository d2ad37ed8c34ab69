import signal
import threading

signal.signal(signal.SIGTERM, print)  # which ends no join
done = threading.Event()
thread = threading.Thread(target=done.wait)  # for what nobody sets
thread.start()
thread.join()

import threading

done = threading.Event()
thread = threading.Thread(target=done.wait)  # for what nobody sets
thread.start()
thread.join()

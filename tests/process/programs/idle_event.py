import threading

threading.Event().wait(8)

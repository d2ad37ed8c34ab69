import threading

threading.Timer(8, print, ["x"]).start()

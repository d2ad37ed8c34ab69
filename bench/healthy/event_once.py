# waits once for long
import threading

threading.Event().wait(13)

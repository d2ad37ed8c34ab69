"""Its import waits for a thread that imports it."""

import importlib
import threading

thread = threading.Thread(target=importlib.import_module, args=(__name__,))
thread.start()
thread.join()

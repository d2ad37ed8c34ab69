# polls an event in a generator that has an end
import threading

event = threading.Event()
any(event.wait(0.5) for _ in range(26))

# polls an event with growing pauses, and gives up at the longest
import threading

pause, event = 0.1, threading.Event()
while pause < 10:
    event.wait(pause)
    pause = pause * 1.5

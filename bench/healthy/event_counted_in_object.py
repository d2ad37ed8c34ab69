# polls an event while a count in an object goes down
import threading


class Tries:
    left = 26


tries, event = Tries(), threading.Event()
while tries.left and not event.wait(0.5):
    tries.left -= 1

# a heartbeat counts, and in the end lets the main thread go
import threading

done, stop = threading.Event(), threading.Event()


def beat():
    beats = 0
    while not stop.wait(0.5):
        beats += 1
        if beats > 26:
            done.set()


threading.Thread(target=beat, daemon=True).start()
while not done.wait(1):
    pass

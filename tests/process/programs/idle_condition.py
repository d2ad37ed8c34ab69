import threading, time

c = threading.Condition()


def f():
    time.sleep(8)
    with c:
        c.notify()


threading.Thread(target=f).start()
with c:
    c.wait()

import time
from multiprocessing import managers

if __name__ == "__main__":
    g = managers.SyncManager(address="listener")  # in this folder: a killed one leaves it behind
    g.start()
    d = g.dict()
    time.sleep(7.5)
    g.shutdown()

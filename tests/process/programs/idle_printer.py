import time

for i in range(6):
    print(i, flush=True)
    time.sleep(1.4)

import itertools, time

for turn in itertools.count():
    print(turn, flush=True)
    time.sleep(0.3)

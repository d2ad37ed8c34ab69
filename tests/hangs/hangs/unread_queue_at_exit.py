"""A process has put more into a queue than the pipe holds, nobody takes it out, and the process ends."""

import multiprocessing as mp

results = mp.get_context("spawn").Queue()
results.put(bytes(1 << 20))
print("done")

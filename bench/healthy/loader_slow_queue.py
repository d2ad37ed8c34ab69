# a DataLoader whose worker polls a queue that the main process's thread fills late
import queue, threading, time

import torch.multiprocessing as mp
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        while True:
            try:
                yield self.source.get(timeout=1)
                return
            except queue.Empty:
                continue


source = mp.get_context("fork").Queue()
threading.Thread(target=lambda: (time.sleep(13), source.put(1))).start()
list(DataLoader(Stream(source), num_workers=1, multiprocessing_context="fork"))

import logging
import time
from collections import deque

import torch
from torch.utils.data import DataLoader, IterableDataset

log = logging.getLogger(__name__)


class RetryError(Exception):
    pass


class Lines(IterableDataset):
    def __init__(self, text, limit=None):
        self.text, self.limit = text, limit

    def __iter__(self):
        for number, line in enumerate(self.text.splitlines()):
            if self.limit is not None and number >= self.limit:
                return
            if line.strip():
                yield {"number": number, "ids": torch.tensor([ord(c) for c in line])}


def with_retries(function, attempts=3):
    for attempt in range(attempts):
        try:
            return function()
        except OSError as error:
            log.warning("attempt %d: %s", attempt, error)
            time.sleep(0.001)
    raise RetryError(attempts)


def load(text, batch_size=2, **options):
    loader = DataLoader(Lines(text, **options), batch_size=batch_size)
    recent = deque(maxlen=2)
    lengths = []
    for batch in loader:
        recent.append(batch["number"])
        lengths.append(batch["ids"].shape[1])
    return recent, lengths


try:
    recent, lengths = with_retries(lambda: load("abcd\nefgh\n\nij\nklm\n", limit=10))
    print(sum(lengths) / len(lengths), list(recent))
except RetryError:
    print("given up")

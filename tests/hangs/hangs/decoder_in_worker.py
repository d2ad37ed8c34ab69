"""A worker waits for the end of a decoder, which waits for room in a pipe that nobody reads."""

import subprocess
import sys

from torch.utils.data import DataLoader, IterableDataset

DECODER = "import sys; sys.stdout.write('pixel ' * 100_000)"


class Video(IterableDataset):
    def __iter__(self):
        for _ in range(3):
            decoder = subprocess.Popen([sys.executable, "-c", DECODER], stdout=subprocess.PIPE)
            if decoder.wait() == 0:
                yield len(decoder.stdout.read())


for frame in DataLoader(Video(), batch_size=None, num_workers=1):
    print(frame)

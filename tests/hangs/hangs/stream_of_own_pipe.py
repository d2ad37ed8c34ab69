"""A script reads its own pipe line by line, and the writing end is still open in itself."""

import os

reading, writing = os.pipe()
os.write(writing, b"1 2 3\n")
with os.fdopen(reading) as numbers:
    print([sum(map(int, line.split())) for line in numbers])

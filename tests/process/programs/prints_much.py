import os
import sys

block = b"x" * (1 << 20)
os.write(1, b"first\n")
for _ in range(int(sys.argv[1])):
    os.write(1, block)
os.write(1, b"last \xc3\xa9\n")

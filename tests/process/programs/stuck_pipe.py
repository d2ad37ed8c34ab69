import os

readable, writable = os.pipe()
os.read(readable, 1)

"""A script asks a question on its standard input, which a launcher keeps open and never writes to."""

import os

reading, writing = os.pipe()
os.dup2(reading, 0)
if input("overwrite? ") == "yes":
    print("overwritten")

"""A script reads the lines of a program that prints only when it is asked."""

import sys
from subprocess import PIPE, Popen

code = "while True: print(eval(input()), flush=True)"
with Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True) as calculator:
    for line in calculator.stdout:
        print(line)

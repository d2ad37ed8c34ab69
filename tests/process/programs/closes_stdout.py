import os
import sys

print("before", flush=True)
os.close(1)
sys.stderr.write("after\n")
sys.exit(3)

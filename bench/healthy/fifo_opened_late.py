# opens a FIFO, which another program opens late
import os, subprocess, tempfile

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "fifo")
    os.mkfifo(path)
    child = subprocess.Popen(["sh", "-c", f"sleep 13; echo late > {path}"])
    print(open(path).read())
    child.wait()

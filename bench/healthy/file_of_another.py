# waits for a file that another program writes
import os, subprocess, tempfile, time

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "ready")
    child = subprocess.Popen(["sh", "-c", f"sleep 13; touch {path}"])
    while not os.path.exists(path):
        time.sleep(0.2)
    child.wait()

# a child is waited for in a loop that ends when the first time is over
import subprocess

child = subprocess.Popen(["sleep", "100"])
while True:
    try:
        child.wait(timeout=13)
    except subprocess.TimeoutExpired:
        break
child.kill()
child.wait()

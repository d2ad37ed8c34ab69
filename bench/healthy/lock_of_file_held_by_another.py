# waits for the lock of a file, which another program holds
import fcntl, subprocess, tempfile

with tempfile.NamedTemporaryFile() as file:
    child = subprocess.Popen(["flock", file.name, "sh", "-c", "echo held; sleep 13"], stdout=subprocess.PIPE)
    child.stdout.readline()
    fcntl.flock(file, fcntl.LOCK_EX)
    child.wait()

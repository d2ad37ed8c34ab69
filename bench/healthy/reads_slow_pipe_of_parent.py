# polls its standard input, into which its parent writes late
import subprocess, sys, time

CHILD = "import select, sys\nwhile not select.select([sys.stdin], [], [], 0.5)[0]: pass"
child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE)
time.sleep(13)
child.communicate(b"x")

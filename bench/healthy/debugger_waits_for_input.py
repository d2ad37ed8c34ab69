# a debugger that waits for its next command, which comes late
import subprocess, sys, time

CODE = "breakpoint()\nprint('done')"
child = subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE)
time.sleep(13)
child.communicate(b"continue\n")

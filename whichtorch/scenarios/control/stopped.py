# /// scenario
# summary = "stops itself and is never continued"
# tags = ["control"]
# timeout = 10
# on_request = true
# expect = [{ outcome = "hang" }]
# ///
import os
import signal

os.kill(os.getpid(), signal.SIGSTOP)
print("somebody sent SIGCONT")

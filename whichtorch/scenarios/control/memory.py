# /// scenario
# summary = "takes more and more memory until it is killed"
# tags = ["control"]
# timeout = 60
# memory_mb = 512
# on_request = true
# expect = [{ outcome = "oom" }]
# ///
import time

STEP = 16  # MiB
FAR_TOO_MUCH = 4096  # MiB: where it gives up when run by hand

taken = []
while len(taken) * STEP < FAR_TOO_MUCH:
    taken.append(b"x" * (STEP * 2**20))
    time.sleep(0.05)
raise SystemExit("nobody stopped me")

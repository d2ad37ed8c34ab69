# /// scenario
# summary = "is busy for longer than its timeout, keeps moving, and ends well: slow, not stuck"
# tags = ["control"]
# timeout = 10
# on_request = true
# expect = [{ outcome = "slow", why = "its own timeout is not looked beyond" }]
# ///
import json
import os
import random
import textwrap
import time

SECONDS = float(os.environ.get("WHICHTORCH_SECONDS", "18"))


def nested(depth):
    if depth == 0:
        return random.random()
    return {"left": nested(depth - 1), "right": [nested(depth - 1)]}


def written(value):
    return textwrap.wrap(json.dumps(value, indent=1), 60)


def sorted_by_length(lines):
    return sorted(lines, key=lambda line: (len(line), line))


end = time.monotonic() + SECONDS
count = 0
while time.monotonic() < end:
    count += len(sorted_by_length(written(nested(8))))
print("wrote", count, "lines")

# /// scenario
# summary = "fails: by an exception, or by its exit code alone"
# tags = ["control"]
# timeout = 30
# on_request = true
# expect = [{ outcome = "fail" }]
# [variants]
# how = ["exception", "exit_code"]
# ///
import os
import sys


def give_up():
    raise ValueError("a control that fails")


if os.environ.get("WHICHTORCH_HOW", "exception") == "exception":
    give_up()
sys.exit(3)

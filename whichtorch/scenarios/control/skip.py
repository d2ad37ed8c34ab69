# /// scenario
# summary = "says that it does not apply here"
# tags = ["control"]
# timeout = 30
# on_request = true
# expect = [{ outcome = "skip" }]
# ///
import sys

print("not applicable: this is a control", file=sys.stderr)
sys.exit(125)

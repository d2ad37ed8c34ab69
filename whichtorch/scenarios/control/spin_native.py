# /// scenario
# summary = "an endless loop in C that keeps the GIL and never looks at signals"
# tags = ["control"]
# timeout = 10
# on_request = true
# expect = [{ outcome = "hang" }]
# ///
import itertools

any(itertools.repeat(False))

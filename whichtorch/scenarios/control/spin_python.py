# /// scenario
# summary = "an endless loop in Python"
# tags = ["control"]
# timeout = 10
# on_request = true
# expect = [{ outcome = "hang" }]
# ///


def spin():
    while True:
        pass


spin()

# /// scenario
# summary = "ends well at once"
# tags = ["control"]
# timeout = 30
# on_request = true
# expect = [{ outcome = "pass" }]
# ///
print("all is well")

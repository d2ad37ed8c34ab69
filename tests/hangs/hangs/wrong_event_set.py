"""A thread sets the event of another phase than the one that is waited for."""

import threading

phases = {name: threading.Event() for name in ("loaded", "compiled", "warm")}


def prepare():
    phases["loaded"].set()
    phases["warm"].set()


threading.Thread(target=prepare).start()
for phase in phases.values():
    phase.wait()

"""What all tests share."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# The commands under test are started a hundred times over: with bytecode each start takes 0.2 s less of a core.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# whoever starts the tests in the background of a shell has Ctrl-C ignored, and so would all commands under test
signal.signal(signal.SIGINT, signal.default_int_handler)

# how long an example takes is the machine's mood, not the code's
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

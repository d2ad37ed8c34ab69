"""A child logs more than fits into the pipe of its stderr, while its parent waits for its end before it reads."""

import logging
import subprocess
import sys

if sys.argv[1:]:
    logging.basicConfig()
    for step in range(5000):
        logging.warning("step %d took longer than expected", step)
else:
    child = subprocess.Popen([sys.executable, __file__, "child"], stderr=subprocess.PIPE)
    child.wait()

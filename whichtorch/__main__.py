"""`whichtorch`, and `python -m whichtorch`."""

import os
import sys


def _is_here(folder: str) -> bool:
    return os.path.exists(folder) and os.path.samefile(folder, ".")


# `python -m` and PYTHONPATH=. put the current folder before the libraries, so a user's queue.py or click.py would be
# imported instead of theirs. Until here, nothing may be imported that Python has not imported itself.
if not _is_here(os.path.dirname(os.path.dirname(__file__))):  # else the libraries may be here, too
    sys.path[:] = [folder for folder in sys.path if not _is_here(folder or ".")]

try:
    from whichtorch.cli import main
except KeyboardInterrupt:  # nothing has started yet, so it ends without a message
    os._exit(130)  # `Exit.INTERRUPTED`, whose import may not have finished

if __name__ == "__main__":
    main()

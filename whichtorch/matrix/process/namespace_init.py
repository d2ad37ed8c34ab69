"""The first process inside a wall: it starts the script, reaps what the script leaves, and tells how that ended.

The kernel turns no ending of it into a number of another meaning: the supervisor reads the script's own status.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False  # importing typing would take longer than all else here
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

STARTED = b"\n"


def attend(status: int, argv: list[str], env: Mapping[str, str], cwd: str, defaulted: Sequence[int]) -> NoReturn:
    """Run a program to the end of all that it leaves; write to `status` that it has started, then how it ended.

    The program gets the default handlers of the signals `defaulted`.
    """
    try:
        os.chdir(cwd)
        leader = os.posix_spawnp(argv[0], argv, env, setsid=True, setsigmask=(), setsigdef=defaulted)
    except OSError as error:
        os.write(status, f"{error}\n".encode(errors="replace"))
        os._exit(127)
    os.write(status, STARTED)
    while True:
        try:
            ended, how = os.wait()
        except ChildProcessError:
            os._exit(0)
        if ended == leader:
            os.write(status, b"%d\n" % how)


if __name__ == "__main__":  # bubblewrap has started it
    _status, _order = map(int, sys.argv[1:])
    os.set_inheritable(_status, False)
    with os.fdopen(_order, "rb") as _file:
        _program = marshal.loads(_file.read())  # noqa: S302  the supervisor wrote it
    attend(_status, *_program)

"""What a line of source says of a wait; it travels with a picture that is read on another machine."""

from __future__ import annotations

from whichtorch.matrix.model import Model


class HeldLock(Model):
    """A lock that a function has taken: by a `with` around the line, or by an `acquire` before it."""

    expression: str  # "target.guard"
    line: int


class SourceSite(Model):
    """What a line of source says of a wait that a thread has reached in it."""

    call: str = ""  # what is called, "dist.broadcast"
    target: str = ""  # of a method, the object: "batches" of `batches.get()`
    first: str = ""  # argument of the call
    origin: str = ""  # of a method, the call that its object came from: "dist.all_reduce" of `work.wait()`
    origin_line: int = 0
    wanted: str = ""  # the lock that this line asks for
    alias: str = ""  # the name that a `with` gives it: `pool` of `with Pool() as pool`
    held: tuple[HeldLock, ...] = ()
    loop: str = ""  # the condition of the innermost `while` around the line

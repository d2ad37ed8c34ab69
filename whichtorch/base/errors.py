"""What went wrong, in words for a user: one line, and what to do about it."""

from __future__ import annotations

import errno

SIGNAL_CHECK = 0.5  # seconds: a signal that another thread took does not wake the main one
INTERRUPTED = "interrupted"
GOES_ON = "what is done is kept, and the same command goes on"


class WhichtorchError(Exception):
    """Base of the errors that reach a user without a traceback.

    `message` is a lower-case fragment without a final period, `hint` the remedy.
    """

    exit_code = 2  # wrong usage

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(WhichtorchError):
    """The command line or a file is wrong."""


class NoCommandError(UsageError):
    """An environment does not have the user's command."""


class PreventedError(WhichtorchError):
    """An index, the disk or the machine is in the way."""

    exit_code = 3


class TimeOverError(KeyboardInterrupt):
    """The time that a command may take is over: what answers an interrupt answers it in the same way."""


class FailFastError(KeyboardInterrupt):
    """A cell failed, and --fail-fast ends the run."""


def why_stopped(interrupt: KeyboardInterrupt) -> str:
    """Return what ended the work: INTERRUPTED for a user or a signal, or that its time is over."""
    return str(interrupt) or INTERRUPTED


_REMEDIES: dict[object, str] = {  # by the number of an error, or its name where it is SQLite's
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, "SQLITE_FULL"), "make room"),
    **dict.fromkeys((errno.EIO, errno.ESTALE, "SQLITE_IOERR"), "check the disk"),
    **dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM, "SQLITE_READONLY", "SQLITE_CANTOPEN"), "make that path writable"
    ),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "restore the missing file or folder"),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN), "close other programs, or raise the limit (ulimit)"
    ),
}


def remedy(error: Exception) -> str | None:
    """Return what a user can do about an error of the machine, or of SQLite on it; None for any other error."""
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])  # without what follows SQLITE_IOERR
    return _REMEDIES.get(error.errno if isinstance(error, OSError) else name)

"""What a user asks of `whichtorch run`."""

from dataclasses import dataclass
from enum import StrEnum

from whichtorch.base.option import Strings, argument, duration, option

HANG_SIGNAL = 57  # tells a pytest that its test hangs; SIGRTMAX - 7: no library is known to use it
ORDER = "{pid}.hang"  # file with what it is to say of the test; the process removes it
STOPPED_CODE = 124  # exit code where the command was stopped or left running, as that of timeout(1)


class OnHang(StrEnum):
    """What happens to a command after its hang is reported."""

    TELL = "tell"  # it goes on, and is watched
    STOP = "stop"  # it is ended
    KEEP = "keep"  # it goes on without us, for a debugger


@dataclass(frozen=True, kw_only=True)
class WatchRequest:
    """A command, and what to do when it hangs."""

    command: Strings = argument("COMMAND...", "A program and its arguments, after --.")
    on_hang: OnHang = option(
        default=OnHang.TELL, help="After a hang: report it and go on watching, stop the command, or leave it running."
    )
    timeout: float | None = duration(help="End the command after this time (90s, 30m, 1h30m), and say where it was.")

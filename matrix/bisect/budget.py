"""What a search may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """None for no bound."""

    seconds: float | None = None
    installs: int | None = None

    def used_up(self, seconds: float, installs: int, *, wants_install: bool) -> str | None:
        """Return which part of it is used up, in words; None where a search may go on."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"the {self.seconds:g} s that it may take are over"
        if self.installs is not None and wants_install and installs >= self.installs:
            return f"the {self.installs} installs that it may make are made"
        return None

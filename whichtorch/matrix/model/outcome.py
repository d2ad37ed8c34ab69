"""What came of a cell, and what ended an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Significance(StrEnum):
    """What an outcome says about torch or the script."""

    GOOD = "good"
    RED = "red"  # something is wrong with torch or the script
    NO_VERDICT = "no verdict"
    NONE = "no evidence"  # nothing was learnt about torch


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """All that the program knows of an outcome: every report and every rule reads it here."""

    letter: str  # in a wide grid; capital where red, so that nothing depends on colour
    meaning: str  # in the legend
    says: Significance
    junit: str = ""  # element of a JUnit case that is not expected; "" for a plain one
    severity: int = 0  # of red ones: the higher speaks for a cell whose attempts disagree equally often
    style: str = "yellow"  # in a terminal, as rich names it
    colour: str = "#5d646e, #9aa2ad"  # on the page, on a light and on a dark ground
    verb: str = "fails"  # what a test does that ends so


_GOOD, _RED, _OPEN, _NONE = Significance.GOOD, Significance.RED, Significance.NO_VERDICT, Significance.NONE


class Outcome(StrEnum):
    """What came of a cell, in one word. A new outcome is a row here and one in docs/contract.md."""

    PASS = "pass", OutcomeRow("p", "ended well", _GOOD, style="green", colour="#2a7548, #74c291")
    VACUOUS = (
        "vacuous",
        OutcomeRow("v", "ended well, but without what it declares", _OPEN, "skipped", colour="#705d06, #d6bf5c"),
    )
    FAIL = "fail", OutcomeRow("F", "exception or exit code", _RED, "failure", 1, "red", "#b02219, #ff8d84")
    HANG = "hang", OutcomeRow("H", "stuck", _RED, "failure", 4, "bold red", "#86178a, #f093f2", "hangs")
    SLOW = "slow", OutcomeRow("s", "still moving when its time was over", _OPEN, "skipped", colour="#1a5aa8, #8fbcf7")
    CRASH = (
        "crash",
        OutcomeRow("C", "ended by a signal", _RED, "failure", 3, "bold magenta", "#994200, #ffad6e", "crashes"),
    )
    OOM = (
        "oom",
        OutcomeRow(
            "O", "out of memory or processes", _RED, "failure", 2, "red", "#74472a, #dbac88", "runs out of memory"
        ),
    )
    SKIP = "skip", OutcomeRow("n", "does not apply here", _OPEN, "skipped")
    UNBUILDABLE = "unbuildable", OutcomeRow("u", "the environment could not be installed", _NONE, "error")
    BROKEN = "broken", OutcomeRow("b", "installed, but cannot run torch", _NONE, "error")
    ERROR = "error", OutcomeRow("e", "the harness or the machine, not torch", _NONE, "error")

    row: OutcomeRow

    def __new__(cls, word: str, row: OutcomeRow) -> Self:
        """Make the word a string, as any StrEnum's, and keep its row."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.row = row
        return member

    @property
    def is_red(self) -> bool:
        """True for what is wrong with torch or the script."""
        return self.row.says is Significance.RED

    @property
    def word(self) -> str:
        """What reports call it: capitals where it is red, so that nothing depends on colour."""
        return self.value.upper() if self.is_red else self.value

    @property
    def is_prevented(self) -> bool:
        """True where nothing was learnt about torch: these are never evidence."""
        return self.row.says is Significance.NONE


class StoppedBy(StrEnum):
    """What ended an attempt."""

    EXIT = "exit"  # it ended by itself
    TIMEOUT = "timeout"  # the wall clock
    STALL = "stall"  # evidence that nothing in the tree can go on
    MEMORY = "memory"  # the tree's resident memory passed its limit
    PROCESSES = "processes"  # the tree had more processes than its limit
    OUTPUT = "output"  # it wrote more than the disk can be asked to hold
    INTERRUPT = "interrupt"  # Ctrl-C, or the tool went away

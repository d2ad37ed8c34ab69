"""Who has gone is told, and many that went alike are told once."""

from __future__ import annotations

from whichtorch.matrix.diagnosis.hang.reasons import ended_children
from whichtorch.matrix.diagnosis.stacks import Process


def test_children_that_ended_alike_are_counted() -> None:
    """One is named by its number; those that ended well are no reason."""
    processes = [Process(pid=number, ended="exit code 1") for number in (1, 2, 3)]
    processes += [Process(pid=4, ended="SIGKILL"), Process(pid=5, ended="exit code 0"), Process(pid=6)]
    assert ended_children(processes) == ["3 children have ended (exit code 1)", "child 4 was killed by SIGKILL"]

"""The table of numbers: what is told of values in two heaps, of what decided, and of medians that say otherwise."""

from __future__ import annotations

import pytest

from tests.results import PASS, cell, environment, result
from whichtorch.model import Basis, Effect, Measurement
from whichtorch.reports.numbers_text import heaps, number_lines

OLD, NEW = environment("2.1.0"), environment("2.2.0")


def table(*samples: float, change: tuple[float, float, float], **fields: object) -> str:
    """Return the table of an environment with such samples, and of a reference that takes 12 ms."""
    own = {"name": "ms", "unit": "ms", "threshold": 0.05} | fields
    reference = Measurement.model_validate(own | {"value": 12.0, "samples": (12.0,) * 4})
    compared = {"value": sorted(samples)[len(samples) // 2], "samples": samples, "reference": OLD.label}
    number = Measurement.model_validate(own | compared | {"change": change, "effect": Effect.WORSE})
    cells = [cell(OLD, PASS, "s", numbers=(reference,)), cell(NEW, PASS, "s", numbers=(number,))]
    return "\n".join(number_lines(result([OLD, NEW], cells), (), 300))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ((31.0, 5000.0, 30.0, 5100.0, 32.0), (31.0, 5050.0)),
        ((31.0, 5000.0, 30.0, 31.5, 32.0), None),  # an outlier
        ((31.0, 31.5, 34.0, 33.0, 30.0), None),
        ((1.0, 1.0, 1.02, 1.02), None),  # nobody needs to know
        ((1.0,), None),
    ],
)
def test_values_in_two_heaps_are_told_as_two(samples: tuple[float, ...], expected: tuple[float, float] | None) -> None:
    """The gap is wider than each heap, by far, and each heap has two values and more."""
    assert heaps(samples) == expected


def test_what_decided_stands_beside_the_value_and_why_below() -> None:
    """With the factor of what became more than twice."""
    why = "a core was missing for 40% of the time: wall time cannot be measured beside this"
    said = table(25, 25, 26, 26, change=(1.1, 0.9, 1.4), basis=Basis.CPU, because=why)
    assert "26 ms (CPU time)  2.1 times [1.9, 2.4]  worse" in said
    assert f"ms: {why}; CPU time decides; 4 runs of each" in said


def test_medians_that_say_otherwise_are_explained() -> None:
    """The change is that of the runs of a round, which may differ from that of the medians."""
    assert "rounds vary" in table(12.8, 12.8, 12.8, 12.8, change=(-0.128, -0.2, -0.06))
    assert "rounds vary" not in table(12.8, 12.8, 12.8, 12.8, change=(0.06, 0.01, 0.09))

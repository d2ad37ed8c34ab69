"""Searching an ordered axis for the change: pure strategy, to be driven by what installs and runs."""

from matrix.search.evidence import (
    Answer,
    Boundary,
    Change,
    Costs,
    Find,
    Kind,
    Observation,
    Options,
    Probe,
    Purpose,
    Search,
    Verdict,
)
from matrix.search.strategy import decide, decide_parallel, partial

__all__ = [
    "Answer",
    "Boundary",
    "Change",
    "Costs",
    "Find",
    "Kind",
    "Observation",
    "Options",
    "Probe",
    "Purpose",
    "Search",
    "Verdict",
    "decide",
    "decide_parallel",
    "partial",
]

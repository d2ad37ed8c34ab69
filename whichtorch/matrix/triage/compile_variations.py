"""Variations that compile at another layer or note what torch is asked, and what their runs noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whichtorch.matrix.run.variation import NOTES, Variation
from whichtorch.matrix.triage.failure_facts import CompileCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whichtorch.matrix.trial.observation import Observation

OFF = {"layer": "off"}  # the rung at which nothing is compiled
NOTED_GRAPH = {"graph": f"{NOTES}/graph.json"}  # the rung that notes the last graph


def at_rung(rung: Mapping[str, Any], plain: Variation | None = None) -> Variation:
    """Return a variation at a rung of the ladder: "layer", "dynamic", "strict"; {} only notes calls."""
    told = {"notes": f"{NOTES}/calls.jsonl", "applied": f"{NOTES}/applied.txt", **rung}
    return (plain or Variation()).model_copy(update={"hooks": {"compile_layer": told}})


def noting_operators(source: str, values_at: int) -> Variation:
    """Return a variation that records the calls of torch in flight, call number `values_at` (0: none) with values."""
    return Variation(
        source=source, hooks={"last_operator": {"file": f"{NOTES}/operators.json", "values_at": values_at}}
    )


def operators_in(seen: Observation) -> str:
    """Return the calls of torch under way at a run's end, as the start-up hook wrote them."""
    return seen.notes.get("operators.json", "")


def applied_in(seen: Observation) -> list[str]:
    """Return the applications of the compiler part that was counted, in order."""
    return seen.notes.get("applied.txt", "").splitlines()


def compile_calls(seen: Observation) -> tuple[CompileCall, ...]:
    """Return what a run compiled and exported."""

    def read() -> Iterator[CompileCall]:
        for line in seen.notes.get("calls.jsonl", "").splitlines():
            try:
                yield CompileCall.model_validate_json(line)
            except ValueError:
                continue  # a line that was torn when the process ended

    return tuple(read())

"""What a triage found of a script -> the header that makes it a scenario, with the outcomes that were measured."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.case import Case

SLOWER = 5.0  # times what the script took: another machine, and a release that compiles for longer
SHORTEST = 30  # seconds
LONGEST_WORDS = 100  # characters


def scenario_of(case: Case, source: str) -> str:
    """Return a script with a header that says what fails where."""
    return "\n".join([*_header(case), *source.rstrip().splitlines()]) + "\n"


def _header(case: Case) -> Iterator[str]:
    """Yield the lines of the header; JSON's texts and lists are TOML's, too."""
    found, seen = case.classification, case.reproduction
    words = found.words if found else ""
    summary = f"{words}: {seen.message}" if seen and seen.message else words or case.name
    yield "# /// scenario"
    yield f"# summary = {_text(summary)}"
    yield f"# tags = {json.dumps([found.category] if found else [])}"
    yield f"# timeout = {max(SHORTEST, math.ceil(SLOWER * seen.seconds / 10) * 10 if seen else 0)}"
    for key, values in (("requirements", case.requirements), ("arguments", case.arguments)):
        if values:
            yield f"# {key} = {json.dumps(values)}"
    if case.variant:
        factors = (f"{name} = [{json.dumps(value)}]" for name, value in case.variant.items())
        yield f"# variants = {{ {', '.join(factors)} }}"
    rows = list(_expected(case))
    if rows:
        yield "# expect = ["
        yield from (f"#   {{ {row} }}," for row in rows)
        yield "# ]"
    yield "# ///"


def _expected(case: Case) -> Iterator[str]:
    """Yield a row for each stretch of releases in which something red was seen."""
    if case.bisection is None:
        if case.reproduction and case.reproduction.outcome.is_red and case.environment:
            yield f'torch = "=={case.environment.torch}", outcome = "{case.reproduction.outcome}"'
        return
    states = case.bisection.timeline
    for number, state in enumerate(states):
        if not state.outcome.is_red:
            continue
        low = f">={state.values[0]}" if number else ""
        high = f"<{states[number + 1].values[0]}" if number + 1 < len(states) else ""
        specifier = ",".join(filter(None, (low, high)))
        version = f'torch = "{specifier}", ' if specifier else ""
        yield f'{version}outcome = "{state.outcome}", why = {_text(state.signature or state.message)}'


def _text(words: str) -> str:
    first = words.partition("\n")[0]
    return json.dumps(first if len(first) <= LONGEST_WORDS else first[: LONGEST_WORDS - 1] + "…", ensure_ascii=False)

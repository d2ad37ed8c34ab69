"""Declared conditions and what an observing attempt saw -> which were met, and what happened instead.

Pure: the observation is what `matrix/environments/startup/observe.py` writes, as JSON. What is exact in it
and what is inferred is told there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrix.model import Condition, ConditionResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.model import Scenario

OBSERVED = "observed"  # where an observing attempt's evidence holds the observation
MOST_NAMED = 3  # operators that are told instead of the one that was wanted

Row = dict[str, Any]


def declared(scenario: Scenario, variant: Mapping[str, str]) -> tuple[Condition, ...]:
    """Return the conditions of a scenario that are asked of a variant."""
    return tuple(found for found in scenario.conditions if found.variant.items() <= variant.items())


def problem_of(conditions: Iterable[Condition], observation: Mapping[str, Any] | None) -> str | None:
    """Return why an observation does not tell whether conditions were met, None where it does."""
    if observation is None:
        return "the observer wrote nothing"
    if observation.get("problem"):
        return str(observation["problem"])
    if not isinstance(observation.get("operators"), list):
        return "the observer wrote no operators"
    if not observation.get("all_threads") and any(condition.thread == "other" for condition in conditions):
        return "this torch's profiler sees the main thread only"
    return None


def check(conditions: Iterable[Condition], observation: Mapping[str, Any]) -> tuple[ConditionResult, ...]:
    """Return for each condition whether it was met by a call of its operator, and what was seen."""
    rows = observation["operators"]
    return tuple(_checked(condition, rows) for condition in conditions)


def unmet_reason(results: Iterable[ConditionResult]) -> str | None:
    """Return what happened instead, for all conditions that were not met; None where all were."""
    unmet = [result.seen for result in results if not result.met]
    return "; ".join(unmet) or None


def _checked(condition: Condition, rows: Sequence[Row]) -> ConditionResult:
    candidates = [row for row in rows if row["op"] == condition.op]
    if not candidates:
        return ConditionResult(condition=condition, met=False, seen=_instead(condition, rows))
    wrong = [_differences(condition, row) for row in candidates]
    nearest = min(range(len(wrong)), key=lambda place: len(wrong[place]))
    if not wrong[nearest]:
        return ConditionResult(condition=condition, met=True, seen=_described(candidates[nearest]))
    # what the nearest call of the operator lacked, and all calls that lacked just as little
    alike = [differences for differences in wrong if len(differences) == len(wrong[nearest])]
    texts = dict.fromkeys(", ".join(differences) for differences in alike)
    return ConditionResult(condition=condition, met=False, seen=f"{condition.op} was dispatched {' and '.join(texts)}")


def _differences(condition: Condition, row: Row) -> list[str]:
    """Return in words how a call of the operator is not what a condition asks for."""
    found = []
    if condition.under is not None and condition.under not in row["under"]:
        where = f"under {row['under'][0]}" if row["under"] else "by itself"
        found.append(f"{where}, not under {condition.under}")
    missing = [key for key in condition.keys if key not in row["keys"]]
    if missing:
        has = ", ".join(row["keys"]) or "no keys"
        found.append(f"with {has}, not with {', '.join(missing)}")
    if condition.grad_mode is not None and row["grad_mode"] is not condition.grad_mode:
        found.append(f"with grad mode {_mode(row['grad_mode'])}, not {_mode(condition.grad_mode)}")
    if condition.thread is not None and row["thread"] != condition.thread:
        thread = f"in the {row['thread']} thread" if row["thread"] == "main" else "in another thread"
        wanted = "the main one" if condition.thread == "main" else "another one"
        found.append(f"{thread if row['thread'] else 'in a thread that is not known'}, not in {wanted}")
    if condition.python_key is not None and row["python_key"] is not condition.python_key:
        seen = {True: "with the Python key", False: "without the Python key", None: "with or without the Python key"}
        found.append(f"{seen[row['python_key']]}, not {seen[condition.python_key]}")
    return found


def _mode(value: bool | None) -> str:
    return {True: "on", False: "off", None: "unknown"}[value]


def _instead(condition: Condition, rows: Sequence[Row]) -> str:
    """Return that an operator was not dispatched, and which were.

    Those with its name in theirs, as in addmm for mm; else those right under the wanted one; else the outermost.
    """
    name = condition.op.rpartition("::")[2]
    alike = [_placed(row) for row in rows if name in row["op"].rpartition("::")[2]]
    inside = [row["op"] for row in rows if condition.under is not None and row["under"][:1] == [condition.under]]
    outermost = [row["op"] for row in rows if not row["under"]]
    names = list(dict.fromkeys(alike or inside or outermost))
    where = f"under {condition.under}: " if inside and not alike else ""
    if not names:
        return f"{condition.op} was not dispatched, nor was any other operator"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{condition.op} was not dispatched, but {where}{', '.join(names[:MOST_NAMED])}{more}"


def _placed(row: Row) -> str:
    return f"{row['op']} under {row['under'][0]}" if row["under"] else str(row["op"])


def _described(row: Row) -> str:
    """Return a call in words."""
    under = "".join(f" under {op}" for op in row["under"])
    keys = f" with {', '.join(row['keys'])}" if row["keys"] else ""
    return f"{row['op']} was dispatched{under}{keys}"

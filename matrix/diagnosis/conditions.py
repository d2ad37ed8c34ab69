"""Declared conditions and what was seen of a test -> which were met, and what happened instead.

Pure: the observation is what `matrix/environments/inside/startup/observe.py` writes, as JSON, or of a hang the same,
from its stacks (`hang/stuck_call.py`). What is exact in it and what is inferred is told there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrix.diagnosis.symbols import UNNAMED
from matrix.model import Condition, ConditionResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.model import Scenario

OBSERVED = "observed"  # where an observing attempt's evidence holds the observation
STACKS = "stacks"  # where rows are from that show only what has not returned, and not all of that
MOST_NAMED = 3  # operators that are told instead of the one that was wanted

Row = dict[str, Any]
Lack = tuple[bool, str]  # is it known that a call was not as asked, and in words what it was, or what is not known


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
    rows, is_whole = observation["operators"], observation.get("from") != STACKS
    return tuple(_checked(condition, rows, is_whole=is_whole) for condition in conditions)


def unmet_reason(results: Iterable[ConditionResult]) -> str | None:
    """Return what happened instead, for all conditions that were not met; None where all were."""
    unmet = [result.seen for result in results if not result.met]
    return "; ".join(unmet) or None


def words(results: Sequence[ConditionResult]) -> str:
    """Return what became of conditions, for people; "" where none are known."""
    reason = unmet_reason(results)
    return f"conditions: {reason}" if reason else "conditions met" if results else ""


def _checked(condition: Condition, rows: Sequence[Row], *, is_whole: bool) -> ConditionResult:
    candidates = [row for row in rows if row["op"] == condition.op]
    if not candidates and is_whole:
        return ConditionResult(condition=condition, met=False, seen=_instead(condition, rows))
    if not candidates:
        return ConditionResult(condition=condition, met=None, seen=f"not known whether {condition.op} was dispatched")
    wrong, open_ = [], []
    for row in candidates:
        lacks = list(_lacks(condition, row))
        wrong.append([text for is_known, text in lacks if is_known])
        open_.append([text for is_known, text in lacks if not is_known])
    nearest = min(range(len(candidates)), key=lambda place: (len(wrong[place]), len(open_[place])))
    if wrong[nearest]:
        # what the nearest call of the operator lacked, and all calls that lacked just as little
        alike = [texts for texts in wrong if len(texts) == len(wrong[nearest])]
        said = " and ".join(dict.fromkeys(", ".join(texts) for texts in alike))
        return ConditionResult(condition=condition, met=False, seen=f"{condition.op} was dispatched {said}")
    seen = _described(candidates[nearest])
    if open_[nearest]:
        seen += f", not known whether {', '.join(open_[nearest])}"
        return ConditionResult(condition=condition, met=None, seen=seen)
    return ConditionResult(condition=condition, met=True, seen=seen)


def _lacks(condition: Condition, row: Row) -> Iterator[Lack]:
    """Yield how a call of the operator is not what a condition asks for, or is not known to be."""
    if condition.under is not None and condition.under not in row["under"]:
        if UNNAMED in row["under"]:
            yield False, f"under {condition.under}"
        else:
            where = f"under {row['under'][0]}" if row["under"] else "by itself"
            yield True, f"{where}, not under {condition.under}"
    missing = ", ".join(key for key in condition.keys if key not in row["keys"])
    if missing and row.get("keys_from") == STACKS:
        yield False, f"with {missing}"
    elif missing:
        yield True, f"with {', '.join(row['keys']) or 'no keys'}, not with {missing}"
    if condition.grad_mode is not None and row["grad_mode"] is None:
        yield False, f"with grad mode {_mode(condition.grad_mode)}"
    elif condition.grad_mode not in {None, row["grad_mode"]}:
        yield True, f"with grad mode {_mode(row['grad_mode'])}, not {_mode(condition.grad_mode)}"
    thread = {"main": "in the main thread", "other": "in another thread"}
    if condition.thread is not None and row["thread"] is None:
        yield False, thread[condition.thread]
    elif condition.thread not in {None, row["thread"]}:
        yield True, f"{thread[row['thread']]}, not in {'the main' if condition.thread == 'main' else 'another'} one"
    python = {True: "with the Python key", False: "without the Python key"}
    if condition.python_key is not None and row["python_key"] is None:
        yield False, python[condition.python_key]
    elif condition.python_key not in {None, row["python_key"]}:
        yield True, f"{python[row['python_key']]}, not {python[not row['python_key']]}"


def _mode(value: bool) -> str:
    return "on" if value else "off"


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

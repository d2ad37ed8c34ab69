"""Say which declared conditions were met, from the calls that a test was seen to dispatch.

`whichtorch/inside/startup/observe.py` writes these calls, and says what in them is exact and what is
inferred. Of a hang the stacks show the calls that have not returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from whichtorch.hangs.dispatch.call_path import Place, Stage, Status
from whichtorch.hangs.stacks import UNNAMED
from whichtorch.model import Condition, ConditionResult, DispatchedCall, DispatchedCalls

if TYPE_CHECKING:
    from whichtorch.hangs.hang_diagnosis import HangDiagnosis

STACKS = "stacks"  # source of calls that are not all that were dispatched, and not known in full
MOST_NAMED = 3  # operators that are named instead of the one that was wanted
_PYTHON = "Python"  # the key of dispatch modes and tensor subclasses
_ALIAS = "Composite"  # begins names of kernels for many keys, which no tensor has

# fact of a call -> its value in words, and again after "not"
_FACTS: dict[str, dict[object, tuple[str, str]]] = {
    "grad_mode": {True: ("with grad mode on", "on"), False: ("with grad mode off", "off")},
    "thread": {"main": ("in the main thread", "in the main one"), "other": ("in another thread", "in another one")},
    "python_key": {True: ("with the Python key",) * 2, False: ("without the Python key",) * 2},
}


def problem_of(conditions: Iterable[Condition], observation: DispatchedCalls | None) -> str | None:
    """Return why an observation does not tell whether conditions were met, None where it does."""
    if observation is None:
        return "the observer wrote nothing"
    if observation.problem:
        return observation.problem
    if observation.operators is None:
        return "the observer wrote no operators"
    if not observation.all_threads and any(condition.thread == "other" for condition in conditions):
        return "this torch's profiler sees the main thread only"
    return None


def check(conditions: Iterable[Condition], observation: DispatchedCalls) -> tuple[ConditionResult, ...]:
    """Return for each condition whether a call of its operator met it, and what was seen."""
    return tuple(_checked(condition, observation) for condition in conditions)


def unmet_reason(results: Iterable[ConditionResult]) -> str | None:
    """Return what happened instead, for all conditions that were not met; None where all were."""
    return "; ".join(result.seen for result in results if not result.met) or None


def words(results: Sequence[ConditionResult]) -> str:
    """Return whether conditions were met, for people; "" where none are known."""
    reason = unmet_reason(results)
    return f"conditions: {reason}" if reason else "conditions met" if results else ""


def _checked(condition: Condition, observation: DispatchedCalls) -> ConditionResult:
    calls = observation.operators or ()
    candidates = [call for call in calls if call.op == condition.op]
    if not candidates and observation.source != STACKS:
        return ConditionResult(condition=condition, met=False, seen=_instead(condition, calls))
    if not candidates:
        return ConditionResult(condition=condition, met=None, seen=f"not known whether {condition.op} was dispatched")
    lacks = [tuple(_lacks(condition, call)) for call in candidates]
    wrong = [[text for is_known, text in rows if is_known] for rows in lacks]
    nearest = min(range(len(candidates)), key=lambda index: (len(wrong[index]), len(lacks[index])))
    if wrong[nearest]:
        # All calls that lack as little as the nearest one are named.
        alike = [texts for texts in wrong if len(texts) == len(wrong[nearest])]
        seen = " and ".join(dict.fromkeys(", ".join(texts) for texts in alike))
        return ConditionResult(condition=condition, met=False, seen=f"{condition.op} was dispatched {seen}")
    call, unknown = candidates[nearest], ", ".join(text for _, text in lacks[nearest])
    keys = f" with {', '.join(call.keys)}" if call.keys else ""
    seen = f"{call.op} was dispatched{''.join(f' under {op}' for op in call.under)}{keys}"
    seen += f", not known whether {unknown}" if unknown else ""
    return ConditionResult(condition=condition, met=None if unknown else True, seen=seen)


def _lacks(condition: Condition, call: DispatchedCall) -> Iterator[tuple[bool, str]]:
    """Yield what a call lacks of a condition: whether that is known, and what it was instead or is not known."""
    if condition.under is not None and condition.under not in call.under:
        if UNNAMED in call.under:
            yield False, f"under {condition.under}"
        else:
            under = f"under {call.under[0]}" if call.under else "by itself"
            yield True, f"{under}, not under {condition.under}"
    missing = ", ".join(key for key in condition.keys if key not in call.keys)
    if missing and call.keys_from == STACKS:
        yield False, f"with {missing}"
    elif missing:
        yield True, f"with {', '.join(call.keys) or 'no keys'}, not with {missing}"
    for fact, words in _FACTS.items():
        wanted, actual = getattr(condition, fact), getattr(call, fact)
        if wanted is not None and actual is None:
            yield False, words[wanted][0]
        elif wanted not in {None, actual}:
            yield True, f"{words[actual][0]}, not {words[wanted][1]}"


def _instead(condition: Condition, calls: Sequence[DispatchedCall]) -> str:
    """Return that an operator was not dispatched, and which were.

    Those with its name in theirs, as in addmm for mm; else those right under the wanted one; else the outermost.
    """
    name = condition.op.rpartition("::")[2]
    alike = [
        f"{call.op} under {call.under[0]}" if call.under else call.op
        for call in calls
        if name in call.op.rpartition("::")[2]
    ]
    inside = [call.op for call in calls if condition.under is not None and call.under[:1] == (condition.under,)]
    outermost = [call.op for call in calls if not call.under]
    names = list(dict.fromkeys(alike or inside or outermost))
    under = f"under {condition.under}: " if inside and not alike else ""
    if not names:
        return f"{condition.op} was not dispatched, nor was any other operator"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{condition.op} was not dispatched, but {under}{', '.join(names[:MOST_NAMED])}{more}"


def stuck_calls(diagnosis: HangDiagnosis) -> DispatchedCalls:
    """Return the calls that have not returned in a hang: the stuck one, and each that encloses it.

    A call that has returned leaves no frame, so an operator that is not here may have been dispatched. No frame shows
    the grad mode; keys show only where a kernel or the environment's table names them.
    """
    place = diagnosis.place
    names = [place.operator or UNNAMED, *reversed(place.enclosing)] if place else []
    ops = tuple(name.partition(".")[0] for name in names)  # conditions name no overloads
    is_main = diagnosis.stuck_thread == diagnosis.stuck_pid
    calls = [
        DispatchedCall(
            op=op,
            under=ops[index + 1 :],
            keys=_keys(place) if place and index == 0 else (),
            keys_from=STACKS,
            grad_mode=None,
            python_key=True if place and index == 0 and place.key == _PYTHON else None,
            thread=None if diagnosis.stuck_thread is None else "main" if is_main else "other",
        )
        for index, op in enumerate(ops)
    ]
    return DispatchedCalls(operators=tuple(call for call in calls if call.op != UNNAMED), source=STACKS)


def _keys(place: Place) -> tuple[str, ...]:
    """Return the keys that a call's tensors must have for it to be where it is."""
    if place.keys:
        return tuple(sorted(place.keys))
    if place.key is None or place.key.startswith(_ALIAS):
        return ()
    entered = {step.stage for step in place.steps if step.seen and step.status is not Status.NEVER}
    has_autograd = place.kernel is not None and place.key != _PYTHON and Stage.AUTOGRAD in entered
    return tuple(sorted({place.key, *([f"Autograd{place.key}"] if has_autograd else [])}))

"""What is busy, told by the user's own loop: answers of the process (`process.evidence.loop_watch`) -> `BusyLoop`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from linecache import getline
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from whichtorch.base.redaction import restored
from whichtorch.model import BusyLoop
from whichtorch.source.syntax import loops_around

if TYPE_CHECKING:
    from whichtorch.process.supervision import LoopAnswer, LoopAnswers, LoopFrame

MOST_OF = 0.5  # share of the outer loop's time that an inner loop needs to be the one named
SHOWN = 60  # characters of a line
NAMED = 3  # variables that are told
Loop = ast.While | ast.For | ast.AsyncFor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """A loop, and the answers in a row, up to the last, at which the process was in it."""

    loop: Loop
    frames: Sequence[LoopFrame]  # its own frame in each of the answers
    since: float  # seconds after the start

    @property
    def head(self) -> str:
        """The loop's first line, as it is written."""
        text = getline(str(restored(Path(self.frames[-1].file))), self.loop.lineno).strip().rstrip(":")
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"

    @property
    def deciding(self) -> list[str]:
        """The variables of its condition, or of its target."""
        first = self.loop.test if isinstance(self.loop, ast.While) else self.loop.target
        return [node.id for node in ast.walk(first) if isinstance(node, ast.Name)]

    @property
    def names(self) -> list[str]:
        """The variables that tell how it gets on: those of its condition, then what its body sets."""
        found = [node.id for node in ast.walk(self.loop) if _is_set(node) and isinstance(node, ast.Name)]
        every = dict.fromkeys([*self.deciding, *found])
        return [name for name in every if all(name in frame.values for frame in self.frames)]

    def digests(self, name: str) -> set[int | None]:
        return {frame.values[name][0] for frame in self.frames}

    def text(self, name: str) -> str:
        return self.frames[-1].values[name][1]


def busy_loop(seen: LoopAnswers, seconds: float, since: float = 0.0) -> BusyLoop | None:
    """Return in which loop a process was busy when its attempt of so many seconds ended: of the user's, if in one.

    Else it is a `while` loop of a library that the user's code has called. Only what was seen `since` some second of
    the attempt counts.
    """
    answers = [answer for answer in seen.answers if answer.frames and answer.after >= since]
    if not answers:
        return None
    last = answers[-1].frames[::-1]  # outermost first
    stretches = [
        stretch
        for depth, frame in enumerate(last)
        for loop in loops_around(frame.file, frame.line, frame.function)
        if (stretch := _stretch(answers, depth, loop))
    ]
    stretches = [each for each in stretches if each.frames[-1].is_users] or stretches
    if not stretches:
        return None
    longest = seconds - min(stretch.since for stretch in stretches)
    told = [stretch for stretch in stretches if seconds - stretch.since >= MOST_OF * longest][-1]
    place = f"{PurePath(told.frames[-1].file).name}:{told.loop.lineno}"
    caller = next((f"{PurePath(each.file).name}:{each.line}" for each in answers[-1].frames if each.is_users), "")
    called = f", called from {caller}," if caller and not told.frames[-1].is_users else ""
    busy = f"busy in `{told.head}` ({place}){called} for {seconds - told.since:.0f} of {seconds:.0f} s"
    moved = [name for name in told.names if len(told.digests(name) - {None}) > 1]
    words = "; ".join(filter(None, (busy, _progress(told, moved, answers[-1].hidden, seconds, repeats=seen.repeats))))
    return BusyLoop(place=place, words=words, repeats=seen.repeats, moves=bool(moved) and not seen.repeats)


def _stretch(answers: Sequence[LoopAnswer], depth: int, loop: Loop) -> _Stretch | None:
    """Return the answers in a row, up to the last one, at which a frame was in a loop, called from the same lines."""
    last, since = answers[-1].frames[::-1], 0.0
    frames: list[LoopFrame] = []
    for answer in reversed(answers):
        stack = answer.frames[::-1]
        if len(stack) <= depth or any(stack[each].line != last[each].line for each in range(depth)):
            break
        frame = stack[depth]
        is_inside = loop.lineno <= frame.line <= (loop.end_lineno or frame.line)
        if (frame.file, frame.function) != (last[depth].file, last[depth].function) or not is_inside:
            break
        frames.append(frame)
        since = answer.after
    return _Stretch(loop=loop, frames=frames[::-1], since=since) if frames else None


def _progress(told: _Stretch, moved: Sequence[str], hidden: str, seconds: float, *, repeats: bool) -> str:
    """Return what has changed in a loop and how fast, or that nothing has, as far as it can be seen."""
    still = [name for name in told.names if len(told.digests(name)) == 1 and None not in told.digests(name)]
    if repeats:
        return f"{f'{_listed(still)} not changed: ' if still else ''}the state of the loop repeats, so it never ends"
    if moved:
        rates = (_rate(told, name, seconds) for name in moved)
        others = next((rate for rate in rates if rate), ", ".join(f"`{name}`" for name in moved[:NAMED]))
        if isinstance(told.loop, ast.While) and told.deciding and set(told.deciding) <= set(still):
            return f"{_listed(told.deciding, ', by which the loop ends,')} not changed; still changing: {others}"
        return f"still changing, perhaps only slow: {others}"
    why = f"cannot tell whether the loop ends: {hidden}" if hidden else ""
    return "; ".join(filter(None, (f"{_listed(still)} not changed" if still else "", why)))


def _listed(names: Sequence[str], aside: str = "") -> str:
    quoted = [f"`{name}`" for name in names[:NAMED]]
    joined = " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
    return f"{joined}{aside} {'have' if len(quoted) > 1 else 'has'}"


def _rate(told: _Stretch, name: str, seconds: float) -> str:
    """Return how far a number has come, and how fast: "`step` 411 of 1000, 20 a second"; "" if it goes up and down."""
    try:
        numbers = [float(frame.values[name][1]) for frame in told.frames]
    except ValueError:
        return ""
    if sorted(numbers) not in (numbers, numbers[::-1]):
        return ""
    pace = abs(numbers[-1] - numbers[0]) / max(seconds - told.since, 1.0)
    speed = f"{pace:.3g} a second" if pace >= 1 else f"{60 * pace:.3g} a minute"
    return f"`{name}` {told.text(name)}{_goal(told, name)}, {speed}"


def _goal(told: _Stretch, name: str) -> str:
    """Return " of 1000" of `for name in range(1000)` and of `while name < 1000`."""
    goal: ast.expr | None = None
    match told.loop:
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[goal] | [_, goal] | [_, goal, _])):
            pass
        case ast.While(test=ast.Compare(left=ast.Name(id=left), ops=[ast.Lt() | ast.LtE()], comparators=[goal])):
            goal = goal if left == name else None
    if isinstance(goal, ast.Name) and goal.id in told.frames[-1].values:
        return f" of {told.text(goal.id)}"
    return f" of {goal.value!r}" if isinstance(goal, ast.Constant) else ""


def _is_set(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)

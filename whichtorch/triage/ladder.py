"""The script as its user runs it, and then at one layer of the compiler after another: at which it fails first.

Nothing of the script is edited: a start-up hook changes what its calls of torch.compile and torch.export ask for.
torch's bisector counts what a part of a layer applies, and can skip the applications past a given count (torch 2.6 or
newer); so halving finds the first application with which the failure appears.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from whichtorch.failures.deadline import SAME_FAILURE, Patience
from whichtorch.failures.failure import described
from whichtorch.failures.tracebacks import shortened
from whichtorch.matrix.judgement import needs_look
from whichtorch.matrix.variation import FORKED, NOTES, PLAIN, Observation, Variation
from whichtorch.model import Outcome, StoppedBy
from whichtorch.triage.case import CompileCall, Reproduction, Rung

if TYPE_CHECKING:
    from whichtorch.failures.failure import Failure
    from whichtorch.matrix.lab import Runner


OFF = {"layer": "off"}  # the rung at which nothing is compiled
NOTED_GRAPH = {"graph": f"{NOTES}/graph.json"}  # the rung that notes the last graph


def at_rung(rung: Mapping[str, Any], plain: Variation | None = None) -> Variation:
    """Return a variation at a rung of the ladder: "layer", "dynamic", "strict"; {} only notes calls."""
    told = {"notes": f"{NOTES}/calls.jsonl", "applied": f"{NOTES}/applied.txt", **rung}
    return (plain or Variation()).model_copy(update={"hooks": {"compile_layer": told}})


def noting_operators(source: str) -> Variation:
    """Return a variation that records the calls of torch in flight."""
    return Variation(source=source, hooks={"last_operator": {"file": f"{NOTES}/operators.json"}})


def operators_in(seen: Observation) -> str:
    """Return the calls of torch under way at a run's end, as the start-up hook wrote them."""
    return seen.notes.get("operators.json", "")


def compile_calls(seen: Observation) -> tuple[CompileCall, ...]:
    """Return what a run compiled and exported."""
    found: list[CompileCall] = []
    for line in seen.notes.get("calls.jsonl", "").splitlines():
        with suppress(ValueError):  # a line that was torn when the process ended
            found.append(CompileCall.model_validate_json(line))
    return tuple(found)


# the layers, each with what it adds to the one before
LAYERS = {
    "off": "eager",
    "eager": "Dynamo",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions and partitioner",
    "inductor": "Inductor",
}
WITHOUT = " without "  # between a layer and a part of it, in the name of a rung
SHAPES = {"dynamic": {"dynamic": True}, "static": {"dynamic": False}}
_BACKENDS = list(LAYERS)[1:]
# parts of a layer that torch's own bisector can switch off, from 2.6 on, in the order in which they act
PARTS = {
    "aot_eager_decomp_partition": ("decomposition",),
    "inductor": ("pre_grad_passes", "joint_graph_passes", "post_grad_passes", "lowerings"),
}
_ALL = 10**6  # more than any part applies in a compilation
_NAME = 100  # characters of what is applied


def climb(
    runs: Runner,
    calls: Sequence[CompileCall],
    failure: Failure,
    limit: float,
    known: Sequence[Rung],
    tell: Callable[[str], None],
) -> Iterator[Rung]:
    """Yield a rung after the other, those already `known` left out; stop where more would tell nothing.

    From the layer up at which the failure shows first, the others have it, too. Of that layer, part after part is
    switched off, until the script passes. KeyboardInterrupt passes through.
    """
    done = {rung.name: rung for rung in known}
    for name, setting in itertools.chain(_rungs(calls), _parts(done)):
        if name in LAYERS and any(done[lower].is_same for lower in LAYERS if lower in done):
            continue
        if name in SHAPES and failure.outcome is Outcome.HANG:
            continue  # each would take the whole limit
        if name not in done:
            done[name] = _climbed(runs, name, setting, failure, limit)
            tell(_line(done[name]))
            yield done[name]


def _rungs(calls: Sequence[CompileCall]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what can be asked of a script that makes such calls."""
    if not calls:
        return
    yield "off", {"layer": "off"}
    backends = [call.backend for call in calls if call.call != "export" and not call.own]
    highest = max((_BACKENDS.index(backend) for backend in backends if backend in _BACKENDS), default=-1)
    yield from ((name, {"layer": name}) for name in _BACKENDS[: highest + 1])
    if any(call.call != "export" for call in calls):
        yield from SHAPES.items()
    if any(call.call == "export" for call in calls):
        yield "strict", {"strict": True}
        yield "non-strict", {"strict": False}


def _parts(done: Mapping[str, Rung]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the parts of the first layer that shows the failure, each switched off, until one without it is healthy."""
    layer = _first_failing(done)
    for part in PARTS.get(layer, ()):
        name = f"{layer}{WITHOUT}{part}"
        yield name, {"layer": layer, "without": part}
        if done[name].is_healthy:
            return


def _climbed(runs: Runner, name: str, setting: Mapping[str, Any], failure: Failure, limit: float) -> Rung:
    run = runs.run(limit, at_rung(setting, FORKED))
    attempt = run.record.attempt
    return Rung(
        name=name,
        outcome=attempt.outcome,
        signature=run.record.signature or "",
        message=attempt.message,
        is_same=failure.compare(run.failure).is_same,
        seconds=attempt.seconds,
    )


def _line(rung: Rung) -> str:
    same = "the same failure" if rung.is_same else rung.message or rung.signature
    return f"{rung.name}: {rung.outcome.word}, {rung.seconds:.1f} s  {same[:100]}".rstrip()


def mending(rungs: Sequence[Rung]) -> Mapping[str, Any]:
    """Return the setting of the rung that passes because it leaves out a part of a layer, {} where there is none."""
    name = next((rung.name for rung in rungs if WITHOUT in rung.name and rung.is_healthy), "")
    layer, _, part = name.partition(WITHOUT)
    return {"layer": layer, "without": part} if part else {}


def first_failing(rungs: Sequence[Rung]) -> str:
    """Return the layer at which the failure shows first, "" where no rung of the ladder shows it."""
    return LAYERS.get(_first_failing({rung.name: rung for rung in rungs}), "")


def _first_failing(done: Mapping[str, Rung]) -> str:
    return next((name for name in LAYERS if name in done and done[name].is_same), "")


def culprit_pass(runs: Runner, rungs: Sequence[Rung], failure: Failure, limit: float) -> str:
    """Return, in words, the first application with which the script fails; "" where that cannot be found.

    All runs are forked, because cold ones would take too long. KeyboardInterrupt passes through.
    """
    rung = mending(rungs)
    if not rung or not runs.forks:
        return ""

    def applying(most: int) -> Observation:
        return runs.run(limit, at_rung({**rung, "most": most}, FORKED))

    def fails(most: int) -> bool:
        return failure.compare(applying(most).failure).is_same

    whole = applying(_ALL)
    if not failure.compare(whole.failure):
        return ""
    applied = whole.notes.get("applied.txt", "").splitlines()  # of the part that is counted, in order
    if not applied:
        return ""
    failing = bisect_left(range(len(applied)), True, lo=1, key=fails)  # all of them are known to fail
    name = applied[failing - 1][:_NAME]
    return f"number {failing} of the {len(applied)} {rung['without']}" + (f": {name}" if name else "")


RUNS = 3
STDERR_KEPT = 64 * 2**10  # characters of its end


def reproduce(runs: Runner, tell: Callable[[str], None], made: list[Observation]) -> None:
    """Run the script until its failure was seen often enough; add each run to `made` when it has ended.

    A hang that needs the whole limit is run twice only. What is slow gets a longer look, which decides; once it has
    shown a hang, the limit is enough.
    KeyboardInterrupt passes through.
    """
    limit = runs.planned.limits.timeout
    hung_at: str | None = None
    while len(made) < RUNS and not (len(made) == 2 and all(map(_took_the_clock, made))):
        # the first is as the user's own; the second notes what it compiles, and would show if that changed anything
        plain = PLAIN.model_copy(update={"hung_at": hung_at})
        variation = at_rung({}, plain) if len(made) == 1 else plain
        if not made and runs.planned.chain:
            variation = variation.model_copy(update={"names_cache": True})
        run = runs.run(limit, variation)
        made.append(run)
        if runs.planned.looks_longer and needs_look(runs.planned, run.record.attempt) and hung_at is None:
            goal, longer = Patience(timeout=limit).longer_look(run.record.attempt)
            tell(f"run {len(made)}: slow, {run.record.attempt.seconds:.1f} s; again, for {longer:.0f} s")
            made[-1] = run = runs.run(longer, variation.model_copy(update={"goal": goal}))
        attempt = run.record.attempt
        if attempt.outcome is Outcome.HANG:
            hung_at = run.record.signature or ""  # busy once more, it needs no longer look
        tell(f"run {len(made)}: {attempt.outcome.word}, {attempt.seconds:.1f} s  {attempt.message[:100]}")


def seen_in(made: Sequence[Observation], limit: float) -> tuple[Reproduction, list[Observation]]:
    """Return what runs of so many seconds at most showed, and those of them that show it."""
    shown = _of_one_failure(made)
    first = shown[0].record
    attempt, chain = first.attempt, first.attempt.evidence.chain
    longest = max(run.record.attempt.seconds for run in shown)
    return Reproduction(
        failing=len(shown) if attempt.outcome.is_red else 0,
        runs=len(made),
        outcome=attempt.outcome,
        signal=attempt.signal or "",
        signature=first.signature or "",
        message=attempt.message,
        where=attempt.diagnosis.summary if attempt.diagnosis else "",
        hang_kind=attempt.diagnosis.kind if attempt.diagnosis else "",
        seconds=longest,
        limit=limit if _took_the_clock(shown[0]) else SAME_FAILURE.limit(longest, limit),
        stderr=shortened(shown[0].stderr, STDERR_KEPT),
        others=tuple(_words(run) for run in made if run not in shown),
        shape=shown[0].failure,
        chain=chain.words if chain and attempt.outcome.is_red else "",
    ), shown


def _of_one_failure(made: Sequence[Observation]) -> list[Observation]:
    """Return the runs that show the most frequent failure; those that pass, where none fails."""
    red = [run for run in made if run.record.attempt.outcome.is_red or run.record.attempt.outcome is Outcome.SLOW]
    if not red:
        return list(made)
    return max([[other for other in red if run.failure.compare(other.failure)] or [run] for run in red], key=len)


def _took_the_clock(run: Observation) -> bool:
    return run.record.attempt.stopped_by is StoppedBy.TIMEOUT


def _words(run: Observation) -> str:
    attempt = run.record.attempt
    return " ".join(filter(None, (attempt.outcome.word, described(run.record.signature, attempt.message))))

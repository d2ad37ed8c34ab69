"""The script of a case -> the smallest that fails in the same way, by the cheapest start that works."""

from __future__ import annotations

import ast
import itertools
import re
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from whichtorch.base.grouping import counted
from whichtorch.failures.failure import Changed, Failure
from whichtorch.failures.tracebacks import shortened
from whichtorch.matrix.variation import NOTES, Observation, Variation
from whichtorch.model import Outcome
from whichtorch.search.runs_oracle import Inquiry, Journal, RunsOracle, drive
from whichtorch.source.code_owner import Component
from whichtorch.source.names import compiles
from whichtorch.source.syntax import parse_module
from whichtorch.triage.case import CompileCall, Minimal
from whichtorch.triage.ladder import NOTED_GRAPH, OFF, STDERR_KEPT, at_rung, noting_operators, operators_in
from whichtorch.triage.minimise.reduction import Reduction, digest_of, reduced
from whichtorch.triage.minimise.script_places import ScriptPlaces, needed_by, registering
from whichtorch.triage.minimise.standalone_script import (
    CapturedGraph,
    calls_under_way,
    scripts_of_calls,
    scripts_of_places,
)

if TYPE_CHECKING:
    from whichtorch.matrix.lab import Runner

Found = TypeVar("Found")
PLACE_TRIALS = 16  # scripts of a place alone that are tried
FALLBACKS = 4  # larger scripts that are tried where the smallest does not hold
OPERATOR_TRIALS = 6  # scripts of a single call that are tried: the innermost calls, and what is around them
ITSELF, CUT = "the script itself", "what it does not need left out"
GRAPH = "the graph that its backend was given, with its inputs"
CALL, PLACE = "the call of torch that it ended in", "the place that it failed in, with the values of there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where the script passes, and so must all that becomes of it."""

    runs: Runner
    rung: Mapping[str, Any]
    words: str  # for where that is

    @property
    def is_release(self) -> bool:
        """Whether it is another release, rather than another way to run the script."""
        return self.rung != OFF

    def start(self, limit: float, variation: Variation) -> Callable[[], bool]:
        """Begin a run there; return what waits for it, and tells whether it passes."""
        ended = self.runs.start(limit, at_rung(self.rung, variation))
        return lambda: ended().record.attempt.outcome is Outcome.PASS


@dataclass(slots=True, kw_only=True)
class SameFailure:
    """The question, and how often it was put."""

    runs: Runner
    failure: Failure
    limit: float  # seconds
    brief_limit: float  # for candidates; less where the failure is a hang
    reference: Reference | None  # None: nothing else tells the failure from others
    asked: int = 0
    error: str = ""  # stderr of the last script that was verified
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, source: str) -> bool:
        """Return whether a candidate shows the failure. It may be called from several threads."""
        with self._guard:
            self.asked += 1
        variation = self._forked(source, {})  # with the hook that the other layer needs, too
        reference = self.reference
        if reference is None:
            return self._is_shown(variation)
        # side by side: what fails is nearly always healthy, and waiting for the one first would take twice the time
        is_healthy = reference.start(self.brief_limit, variation)
        is_shown = self._is_shown(variation)
        return is_healthy() and is_shown

    def is_verified(self, source: str) -> bool:
        """Return the same, in processes that import torch themselves, with caches of their own."""
        variation = Variation(source=source)
        run = self.runs.run(self.limit, variation)
        self.error = run.stderr
        return self.failure.compare(run.failure, Changed.SCRIPT).is_same and (
            self.reference is None or self.reference.start(self.limit, variation)()
        )

    def noted(self, name: str, source: str, rung: Mapping[str, Any]) -> str:
        """Run a source that writes a file of this name into NOTES, and return its text, "" where it wrote none."""
        return self.runs.run(self.brief_limit, self._forked(source, rung)).notes.get(name, "")

    def _forked(self, source: str, rung: Mapping[str, Any]) -> Variation:
        """Return how a source is run: all alike, so that one fork server serves them."""
        is_brief = self.failure.outcome is Outcome.FAIL  # what is raised is raised before the end
        return at_rung(rung, Variation(source=source, may_fork=True, is_brief=is_brief))

    def _is_shown(self, variation: Variation) -> bool:
        return self.failure.compare(self.runs.run(self.brief_limit, variation).failure, Changed.SCRIPT).is_same


@dataclass(kw_only=True)
class Minimising:
    """How a script is cut down, and what is known of it."""

    same: SameFailure
    whole: Observation  # the script, run in a folder of its own
    calls: tuple[CompileCall, ...]  # of compilers, that it makes
    known: Journal[bool]  # by candidate and reference: kept, the same minimising goes on
    jobs: int = 1  # candidates that are tried at once
    has_own_check: bool  # that fails: no graph shows it
    tell: Callable[[str], None]

    def smallest(self, source: str) -> Minimal:
        """Return the smallest script found. KeyboardInterrupt passes through."""
        started, same = time.monotonic(), self.same
        with self.oracle:
            # it stands if it fails when it starts cold; forks and warm caches may have shown something else
            found = next((each for each in self._smaller(source) if same.is_verified(each[0])), None)
        best, method = found or (source, ITSELF)
        return Minimal(
            source=best,
            method=method,
            lines=code_lines(best),
            lines_before=code_lines(source),
            runs=same.asked,
            seconds=round(time.monotonic() - started, 1),
            is_verified=found is not None or same.is_verified(source),
            healthy_in=same.reference.words if same.reference else "",
            shape=same.failure,
            error=shortened(same.error, STDERR_KEPT),
        )

    def _smaller(self, source: str) -> Iterator[tuple[str, str]]:
        """Yield smaller scripts and how they were found, the cheapest first; none of what this Python cannot read."""
        if not compiles(source):
            return
        if not self.calls:
            for candidate in self._single_calls(source):
                if self.oracle.answer(candidate):
                    self.tell(f"one call is enough: {candidate.strip().splitlines()[-1].strip()}")
                    yield candidate, CALL
        for candidate in itertools.islice(self._places(source), PLACE_TRIALS):
            if self.oracle.answer(candidate):
                self.tell(f"a place of it alone is enough: {counted(code_lines(candidate), 'line')}")
                yield self._reduced(candidate).source, PLACE
        if (graph := self._graph(source)) is not None:
            self.tell(f"a part of its graph is enough: {counted(code_lines(graph), 'line')}")
            yield graph, GRAPH
        reduction = self._reduced(source, [*self._raised_lines(), *self._compiled_lines()])
        if reduction.is_smaller:
            # what fails only by chance may have been taken for the failure: what it was made of may still show it
            steps = max(1, len(reduction.larger) // FALLBACKS)
            for text in (reduction.source, *reduction.larger[steps - 1 :: steps]):
                yield text, CUT

    def _reduced(self, source: str, failing_lines: Sequence[int] = ()) -> Reduction:
        return self._driven(lambda: reduced(source, failing_lines))

    def _driven(self, search: Callable[[], Generator[str, bool, Found]]) -> Found:
        return drive(search(), self.oracle, search)

    @cached_property
    def oracle(self) -> RunsOracle[str, bool]:
        """Answers whether a candidate fails in the same way; none is run twice."""

        def answered(candidate: str, is_same: bool) -> None:
            if is_same:
                self.tell(f"candidate {oracle.made}: {counted(code_lines(candidate), 'line')}")

        beside = self.same.reference.words if self.same.reference else ""
        oracle = RunsOracle[str, bool](
            inquiry=lambda text: Inquiry(key=f"{digest_of(text)} {beside}".strip(), run=partial(self.same, text)),
            pool=self.same.runs.workers(self.jobs) if self.jobs > 1 else None,
            journal=self.known,
            guess=False,
            answered=answered,
        )
        return oracle

    def _places(self, source: str) -> Iterator[str]:
        """Yield scripts of the places alone in which the script was when it failed."""
        script = ScriptPlaces(source, self._raised_lines(), self._compiled_lines())
        if not script.places:
            return
        rung = OFF if self.calls else {}  # a compiler would read what writes the notes
        recorded = self.same.noted("values.json", script.recording(f"{NOTES}/values.json"), rung)
        yield from scripts_of_places(script, recorded, next(iter(self.calls), None))

    def _graph(self, source: str) -> str | None:
        """Return a script of the last graph that a backend was given; None where none was, or it does not fail so."""
        call = next((call for call in self.calls if call.call != "export" and not call.own), None)
        if call is None or self.has_own_check:
            return None
        graph = CapturedGraph.read(self.same.noted("graph.json", source, NOTED_GRAPH), call)
        if graph is None:
            return None
        tree = parse_module(source)
        acting = registering(tree, next(iter(self._raised_lines()), 0))
        context = needed_by(ast.Module([], []), tree, acting) if acting else ""
        found = self._driven(lambda: graph.smallest(context))
        return self._reduced(found).source if found is not None else None

    def _raised_lines(self) -> list[int]:
        """Return the script's lines on the stack of the first cause, the innermost last."""
        frames = self.whole.chain[-1].frames if self.whole.chain else ()
        return [frame.line for frame in reversed(frames) if frame.component is Component.SCRIPT]

    def _compiled_lines(self) -> list[int]:
        """Return the script's lines that a compiler was reading when it failed, the innermost last.

        They are on no stack: the message quotes them ("from user code").
        """
        name = re.escape(self.same.runs.planned.scenario.path.name)
        message = self.whole.chain[-1].message if self.whole.chain else ""
        return list(map(int, re.findall(rf'File "[^"]*\b{name}", line (\d+)', message)))

    def _single_calls(self, source: str) -> Iterator[str]:
        """Yield scripts of the calls that were under way at the end, with new tensors."""
        seen = self.same.runs.run(self.same.brief_limit, noting_operators(source))
        yield from itertools.islice(scripts_of_calls(calls_under_way(operators_in(seen))), OPERATOR_TRIALS)


def code_lines(source: str) -> int:
    """Return how many lines of a script are neither blank nor a comment alone, where each statement has its own."""
    if compiles(source):
        with warnings.catch_warnings(action="ignore"):
            source = ast.unparse(parse_module(source))
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in source.splitlines())

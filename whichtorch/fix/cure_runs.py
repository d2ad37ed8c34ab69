"""What a search for a fix has run: the script in both releases and in changed ones, and what tells about these."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch import inside
from whichtorch.base.atomic_files import write_atomic
from whichtorch.base.errors import PreventedError
from whichtorch.environments.overlay import encoded, site_packages
from whichtorch.failures.deadline import BOTH_LOOKS
from whichtorch.failures.failure import Failure
from whichtorch.failures.tracebacks import CodeFrame, read_frames
from whichtorch.fix.cure_search import Trial, TrialEffect
from whichtorch.fix.functions_run import FunctionsRun
from whichtorch.fix.tree_change import PackageTree, package_tree
from whichtorch.hangs.stack_folder import read_folder
from whichtorch.matrix.site import LocalSite
from whichtorch.matrix.variation import NOTES, Observation, Variation
from whichtorch.model import Attempt, Environment, Outcome, digest

if TYPE_CHECKING:
    from whichtorch.matrix.lab import Runner

Files = Mapping[str, str | None]

NATIVE_DUMP = inside.path("native_dump.py")
TREE_DUMP = inside.path("tree_dump.py")
COMMON_CALLS = inside.path("common_calls.py")
# steps of COMMON_CALLS
COMPILERS = {"dynamo": "torch/_dynamo/", "inductor": "torch/_inductor/", "export": "torch/export/"}
INSIDE_TIMEOUT = 300.0  # seconds: `import torch` from a cold disk takes up to a minute, and so do compilers
STARVED = 1.25  # times the processor time of a pass: with less, a trial may not have come to its end
NOTING = {"note_functions": NOTES}  # the start-up hook


@dataclass(frozen=True, slots=True, kw_only=True)
class CureTest:
    """What a trial is to show: that a failure is gone, in the time that a cure would take."""

    failure: Failure
    limit: float  # seconds
    cpu_seconds: float = 0.0  # on all cores, of a run that passes

    def was_starved(self, attempt: Attempt) -> bool:
        """Return whether a trial was stopped that had no more of the machine than a run that passes needs."""
        return attempt.outcome is Outcome.SLOW and attempt.cpu_seconds < STARVED * self.cpu_seconds


@dataclass(frozen=True, slots=True)
class CureRuns:
    """The runs of one search."""

    runner: Runner
    trees: Path | None = None  # an empty folder, for the trees of environments on other machines

    @property
    def folder(self) -> Path:
        """Where what the search keeps lies."""
        return self.runner.lab.home / "fix"

    def run(self, environment: Environment, limit: float, files: Files | None = None) -> Observation:
        """Run the script once, with some files changed; raise KeyboardInterrupt where it was interrupted."""
        return self.runner.at(environment).run(limit, Variation(files=files or {}))

    def noted(self, environment: Environment, limit: float, files: Files | None = None) -> FunctionsRun:
        """Run the script once and return which functions of torch it ran; how it ended is no evidence of a failure."""
        kept = digest([self.runner.planned.key(environment), *([sorted(files.items())] if files else [])])
        return self._functions(f"functions-{kept}", environment, limit, Variation(files=files or {}, hooks=NOTING))

    def common_calls(self, environment: Environment, active: Collection[str]) -> FunctionsRun:
        """Return the functions of torch that any script may run there.

        Only those compilers count that have files among the `active` ones of the script's own run.
        """
        steps = tuple(step for step, folder in COMPILERS.items() if any(path.startswith(folder) for path in active))
        variation = Variation(source=COMMON_CALLS.read_text(), is_alone=True, arguments=steps, hooks=NOTING)
        name = f"everyday-{environment.id}-{'-'.join(steps) or 'plain'}"
        return self._functions(name, environment, INSIDE_TIMEOUT, variation)

    def symbols(self, environment: Environment) -> frozenset[str]:
        """Return the dotted names of what an environment's binary offers; raises PreventedError."""
        kept = self.folder / f"symbols-{environment.id}.json"
        if not kept.exists():
            answer = "symbols.json"
            variation = Variation(source=NATIVE_DUMP.read_text(), is_alone=True, arguments=(f"{NOTES}/{answer}",))
            seen = self.runner.at(environment).run(INSIDE_TIMEOUT, variation)
            if answer not in seen.notes:
                last = (seen.stderr.strip().splitlines() or ["no answer"])[-1]
                raise PreventedError(f"the symbols of {environment.label} could not be listed: {last}")
            write_atomic(kept, seen.notes[answer])
        return frozenset(json.loads(kept.read_text(encoding="utf-8")))

    def tree(self, environment: Environment) -> PackageTree:
        """Return the Python files of torch in an environment; a run on another machine fetches those that are there."""
        if isinstance(self.runner.lab.site, LocalSite) or self.trees is None:
            assert environment.interpreter is not None
            return package_tree(site_packages(environment.interpreter.parent.parent))
        variation = Variation(source=TREE_DUMP.read_text(), is_alone=True, arguments=(NOTES,))
        seen = self.runner.at(environment).run(INSIDE_TIMEOUT, variation)
        if seen.record.attempt.outcome is not Outcome.PASS:
            last = (seen.stderr.strip().splitlines() or ["no answer"])[-1]
            raise PreventedError(f"the files of {environment.label} could not be read: {last}")
        folder = self.trees / environment.id
        for path, text in (each for note in seen.notes.values() for each in json.loads(note).items()):
            if ".." in Path(path).parts or Path(path).is_absolute():
                raise PreventedError(f"a worker sent a file of {environment.label} called {path}")
            write_atomic(folder / path, encoded(text))
        return package_tree(folder)

    def frames(self, seen: Observation) -> tuple[CodeFrame, ...]:
        """Return where a run failed: the frames of its tracebacks, and of the stacks where it was stopped."""
        stacks = seen.record.attempt.stacks
        stuck = _stuck_frames(self.runner.lab.home / stacks) if stacks else ()
        return (*read_frames(seen.stderr), *stuck)

    def trial(self, environment: Environment, files: Files, test: CureTest) -> Trial:
        """Run the script with files changed, and tell what that does to a failure.

        Raises PreventedError where the run says nothing.
        """
        seen = self.fair_run(environment, files, test)
        attempt = seen.record.attempt
        if attempt.outcome.is_prevented:
            raise PreventedError(f"a run could not be judged: {attempt.note or attempt.outcome}")
        if attempt.outcome is Outcome.PASS:
            return Trial(effect=TrialEffect.CURED, seconds=attempt.seconds)
        return Trial(
            effect=TrialEffect.SAME if test.failure.compare(Failure.of(seen.record)) else TrialEffect.UNRESOLVED,
            exception=f"{(seen.record.signature or '').partition(' in ')[0]}: {attempt.message}",
            frames=self.frames(seen),
            seconds=attempt.seconds,
        )

    def fair_run(self, environment: Environment, files: Files, test: CureTest) -> Observation:
        """Run the script once with files changed, for as long as a cure may take.

        A run that had too little of a core gets more time once, so that a cure is not mistaken for the hang.
        """
        seen = self.run(environment, test.limit, files)
        return self.run(environment, BOTH_LOOKS * test.limit, files) if test.was_starved(seen.record.attempt) else seen

    def _functions(self, name: str, environment: Environment, limit: float, variation: Variation) -> FunctionsRun:
        """Return the functions that a run notes; what was noted once is kept, for the same search goes on from it."""
        kept = self.folder / f"{name}.json"
        if not kept.exists():
            seen = self.runner.at(environment).run(limit, variation)
            outcome = seen.record.attempt.outcome
            if outcome.is_prevented:  # it says nothing, and the next call may fare better
                raise PreventedError(f"{environment.label} could not be run: {seen.record.attempt.note or outcome}")
            write_atomic(kept, json.dumps({"passed": outcome is Outcome.PASS, "notes": dict(seen.notes)}))
        told = json.loads(kept.read_text(encoding="utf-8"))
        return FunctionsRun.of_notes(told["notes"], passed=told["passed"])


def _stuck_frames(folder: Path) -> Iterator[CodeFrame]:
    """Yield the Python frames of a stopped run's processes, those of threads that were on a core first."""
    threads = [thread for process in read_folder(folder) for thread in process.threads]
    for thread in sorted(threads, key=lambda thread: not thread.active):
        for frame in thread.frames:
            if frame.is_python and frame.file and frame.line is not None:
                yield CodeFrame(file=frame.file, line=frame.line, function=frame.function)

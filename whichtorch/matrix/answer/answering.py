"""Answer a bug report: run its script in the release that it names and in the newest one, and find the change between.

Which script it is, is decided by what the candidates show: the first that shows the failure that the report tells of.
"""

from __future__ import annotations

import ast
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from whichtorch.matrix.answer import needs
from whichtorch.matrix.answer.answer import Answer, ChangedAt, ShownOutcome, Sighting, Verdict
from whichtorch.matrix.answer.candidates import candidates_in
from whichtorch.matrix.answer.claims import claims_of, pins, shows
from whichtorch.matrix.answer.printed_check import checked
from whichtorch.matrix.bisect.search_request import Budget, SearchRequest, search
from whichtorch.matrix.diagnosis.missing_package import missing_module
from whichtorch.matrix.diagnosis.patience import BESIDE_PASS
from whichtorch.matrix.diagnosis.signature import described
from whichtorch.matrix.diagnosis.tracebacks import read_chain
from whichtorch.matrix.environments.index.version_specs import EVERY_RELEASE
from whichtorch.matrix.environments.interpreters import DEFAULT_PYTHON, found_python
from whichtorch.matrix.errors import PreventedError, TimeOverError, UsageError
from whichtorch.matrix.model import Outcome, digest
from whichtorch.matrix.plan.environment_options import Additions, SearchAxes
from whichtorch.matrix.plan.expansion import expand
from whichtorch.matrix.plan.planning import plan
from whichtorch.matrix.plan.run_options import RunOptions
from whichtorch.matrix.records.store import read_records
from whichtorch.matrix.run.pipeline import recorded_run
from whichtorch.matrix.run.site import ThisMachine
from whichtorch.matrix.trial.observation import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from whichtorch.matrix.answer.candidates import Candidate
    from whichtorch.matrix.answer.claims import Claims
    from whichtorch.matrix.answer.report import Report
    from whichtorch.matrix.diagnosis.tracebacks import RaisedException
    from whichtorch.matrix.environments.cache import EnvironmentCache
    from whichtorch.matrix.events import Show
    from whichtorch.matrix.model import Cell, Environment, Scenario

WRAP_UP = 5.0  # seconds that an answer needs after its last run
FLAKY_RUNS = 10  # of a script that does not fail in every run, until it does
SHOWN_OUTPUT = 3000  # characters of what a script wrote last
_NO_NETWORK = re.compile(
    r"URLError|HTTPError|ConnectionError|gaierror|MaxRetryError|Connection(?:Refused|Reset)Error|OfflineModeIsEnabled|"
    r"LocalEntryNotFound|Network is unreachable|Name or service not known|Temporary failure in name resolution"
)
_NO_DEVICE = re.compile(
    r"Found no NVIDIA driver|not compiled with (?:CUDA|XPU|MPS|HIP)|No (?:CUDA|HIP|XPU) GPUs are available|"
    r"Attempting to deserialize object on a CUDA|no NVIDIA|Torch not linked with", re.IGNORECASE,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """What is asked of a report."""

    report: Report
    home: Path
    newest: str = "latest"
    max_seconds: float | None = None
    options: RunOptions = field(default_factory=RunOptions)
    jobs: int | None = None


@dataclass(kw_only=True)
class Answering:
    """The work on one report."""

    request: AnswerRequest
    cache: EnvironmentCache
    show: Show
    began: float = field(default_factory=time.monotonic)
    known: Answer | None = None  # as far as it is known, for when the time is over

    def answer(self) -> Answer:
        """Return the answer; where the time is over, what is known by then."""
        try:
            answer = self._answer()
        except TimeOverError:
            if self.known is None:
                raise
            answer = self.known
            if not answer.seen:
                answer = answer.model_copy(update={"why": "the time was over before the script had run"})
        return answer.model_copy(update={"seconds": round(time.monotonic() - self.began, 1)})

    def _answer(self) -> Answer:
        report, claims = self.request.report, claims_of(self.request.report)
        base = Answer(
            verdict=Verdict.UNKNOWN,
            why="nothing was run",
            title=report.title,
            claimed_version=claims.torch,
            claimed=claims.claim.words,
        )
        candidates = candidates_in(report)
        if (refusal := _refusal(base, candidates, report)) is not None:
            return refusal
        useful = [each for each in candidates if needs.uses_torch(each.tree)]
        wanting: Answer | None = None
        for candidate in useful:
            asks = _lacks(base, candidate, report)
            wanting = wanting or asks
            if asks is None:
                answer = self._tried(base, candidate, claims)
                if answer.verdict in {Verdict.REPRODUCES, Verdict.FIXED}:
                    return answer
                wanting = _better(wanting, answer)
        assert wanting is not None
        return wanting

    def _tried(self, base: Answer, candidate: Candidate, claims: Claims) -> Answer:
        """Return what a candidate tells."""
        source, added = checked(candidate.source, claims.claim)
        place = self.request.home / "reports" / digest([source, *candidate.call.arguments], 16)
        place.mkdir(parents=True, exist_ok=True)
        script = place / "repro.py"
        for name, text in ((script.name, source), *candidate.files):
            (place / name).write_text(text, encoding="utf-8")
        trees = [candidate.tree, *(ast.parse(text) for _, text in candidate.files)]
        own = [name for name, _ in candidate.files]
        packages = tuple(dict.fromkeys(each for tree in trees for each in needs.packages(tree, pins(claims), own)))
        trial = self._trial(script, candidate, claims, packages)
        base = base.model_copy(
            update={
                "script": source,
                "added": (*candidate.added, *added),
                "arguments": candidate.call.arguments,
                "variables": dict(candidate.call.variables),
                "packages": packages,
                "python": trial.python,
                "run_version": trial.claimed,
                "notes": trial.notes,
            }
        )
        self.known = self.known or base
        here, newest = self._both_ends(trial, claims)
        base = base.model_copy(
            update={
                "outcome": None if here.outcome is ShownOutcome.OTHER else here.outcome,
                "failure": here.failure,
                "newest": newest,
                "seen": (here, newest),
            }
        )
        base = base.model_copy(update={"blocked": tuple(dict.fromkeys((*here.blocked, *newest.blocked)))})
        answer = judged(base, here, newest, claims)
        if answer.verdict is Verdict.NOT_SEEN and claims.has_accelerator and needs.may_use_accelerator(candidate.tree):
            why = f"{answer.why} on the CPU; the report was made with an accelerator, which the script uses"
            answer = answer.model_copy(update={"verdict": Verdict.HARDWARE, "why": why, "asks": "a run there"})
        self.known = answer
        if answer.verdict in {Verdict.REPRODUCES, Verdict.FIXED}:
            answer = answer.model_copy(update={"boundary": self._boundary(trial, claims, here, newest)})
        return with_boundary(answer)

    @property
    def _is_over(self) -> bool:
        most = self.request.max_seconds
        return most is not None and time.monotonic() - self.began >= most

    def _trial(self, script: Path, candidate: Candidate, claims: Claims, packages: tuple[str, ...]) -> Trial:
        """Return where a script runs: the releases, the Python, the packages. Raises UsageError, PreventedError."""
        notes: list[str] = []
        python = claims.python if claims.python and found_python(claims.python) else DEFAULT_PYTHON
        if claims.python and python != claims.python:
            notes.append(f"Python {python} instead of {claims.python}, which this machine does not have")
        variables = tuple(f"{name}={value}" for name, value in candidate.call.variables)
        axes = SearchAxes(python=(python,), added=Additions(requirements=packages, env=variables))
        releases = self._releases(axes)
        if python != DEFAULT_PYTHON and not _has(releases, claims.torch):
            axes, python = replace(axes, python=(DEFAULT_PYTHON,)), DEFAULT_PYTHON
            releases = self._releases(axes)
        newest = releases[-1]
        if self.request.newest != "latest":
            newest = next((each for each in releases if Version(each) == Version(self.request.newest)), "")
            if not newest:
                raise UsageError(f"--newest {self.request.newest}: no such release for Python {python}")
        claimed = newest
        if not claims.torch:
            notes.append(f"the report names no release of torch: {newest} stands for it")
        else:
            claimed = _nearest(claims.torch, releases)
            if Version(claimed).public != Version(claims.torch).public:
                notes.append(f"torch {claimed} stands for {claims.torch}, of which there is no wheel")
        scenario = (
            axes.file([claimed])
            .script(str(script), candidate.call.arguments)
            .model_copy(update={"folder": script.parent})
        )
        return Trial(
            scenario=scenario,
            axes=axes,
            python=python,
            oldest=releases[0],
            claimed=claimed,
            newest=newest,
            notes=tuple(notes),
        )

    def _releases(self, axes: SearchAxes) -> list[str]:
        """Return the releases of torch that a Python has wheels for, oldest first."""
        expansion = expand(axes.file([EVERY_RELEASE]), cache=self.request.home / "cache")
        usable = [Version(each.torch).public for each in expansion.requests if each.problem is None]
        if not usable:
            problems = [each.problem for each in expansion.requests if each.problem]
            raise PreventedError(problems[0] if problems else "no release of torch is known")
        return usable

    def _both_ends(self, trial: Trial, claims: Claims) -> tuple[Sighting, Sighting]:
        """Run the script in the claimed release and in the newest one.

        Of a hang the newest is first: if it passes there, many times as long is as good as a hang.
        """
        if claims.claim.outcome is not Outcome.HANG or trial.claimed == trial.newest:
            sightings = self._sightings(trial, claims, trial.claimed, trial.newest)
            return sightings[0], sightings[-1]
        (newest,) = self._sightings(trial, claims, trial.newest)
        (here,) = self._sightings(trial, claims, trial.claimed)
        times = BESIDE_PASS.times
        is_longer = here.seconds >= times * newest.seconds or here.cpu_seconds >= times * newest.cpu_seconds
        if here.is_slow and newest.outcome is ShownOutcome.PASS and is_longer:
            words = f"still running after {here.seconds:.0f} s; {newest.version} takes {newest.seconds:.0f} s"
            update = {"outcome": ShownOutcome.HANG, "failure": words, "is_as_claimed": True, "why": ""}
            here = here.model_copy(update=update)
        return here, newest

    def _sightings(self, trial: Trial, claims: Claims, *versions: str) -> list[Sighting]:
        """Run the script in some releases, and return what each shows."""
        home, options = self.request.home, self.request.options
        if claims.is_flaky:
            red = frozenset({Outcome.FAIL, Outcome.HANG, Outcome.CRASH})
            options = replace(options, repeat=max(options.repeat, FLAKY_RUNS), until=red)
        options = replace(options, in_search=claims.claim.outcome is Outcome.HANG)
        machines = ThisMachine.of(self.cache, self.request.jobs)
        file = trial.axes.file(list(dict.fromkeys(versions)))
        planned = plan(expand(file, cache=home / "cache").requests, [trial.scenario], options)
        with recorded_run(machines, read_records(home), self.show, len(planned)) as run_cells:
            environments, cells = run_cells(planned)
        by_id = {each.id: each for each in environments}
        found = {Version(by_id[cell.environment].torch).public: cell for cell in cells}
        by_version = {version: found[Version(version).public] for version in versions}
        return [self._sighting(version, cell, by_id[cell.environment], claims) for version, cell in by_version.items()]

    def _sighting(self, version: str, cell: Cell, environment: Environment, claims: Claims) -> Sighting:
        last = next((each for each in reversed(cell.attempts) if each.outcome is cell.outcome), None)
        stderr = text_of(self.request.home / last.stderr) if last and last.stderr else ""
        chain = read_chain(stderr) if cell.outcome is Outcome.FAIL else ()
        is_claimed, why = shows(claims.claim, cell, chain) if cell.outcome.is_red else (False, "")
        if cell.outcome is Outcome.FAIL and not is_claimed:
            why = _no_evidence(cell, stderr, chain[0].name if chain else "") or why
        return Sighting(
            version=version,
            outcome=ShownOutcome.of(cell.outcome),
            failure=_words_of(cell, chain),
            is_as_claimed=is_claimed,
            why=why,
            hang=cell.what or "" if cell.outcome is Outcome.HANG else "",
            stderr=stderr[-SHOWN_OUTPUT:] if cell.outcome.is_red else "",
            seconds=cell.seconds,
            cpu_seconds=last.cpu_seconds if last else 0,
            is_slow=cell.outcome is Outcome.SLOW,
            blocked=tuple(dict.fromkeys(each for attempt in cell.attempts for each in attempt.evidence.tried)),
            environment=environment,
        )

    def _boundary(self, trial: Trial, claims: Claims, here: Sighting, newest: Sighting) -> ChangedAt | None:
        """Find the releases between which the failure went, or, if it is still there, since which it is there."""
        bad, good, oldest = (here if here.is_as_claimed else newest).version, None, trial.oldest
        if here.version != newest.version and ShownOutcome.PASS in {here.outcome, newest.outcome}:
            spec, good = (
                f">={here.version},<={newest.version}",
                here.version if bad == newest.version else newest.version,
            )
        elif Version(oldest) >= Version(bad):
            return None
        else:
            (first,) = self._sightings(trial, claims, oldest)
            if first.is_as_claimed:  # it always was there
                return None
            spec, good = f">={oldest},<={bad}", oldest if first.outcome is ShownOutcome.PASS else None
        left = self.request.max_seconds and self.request.max_seconds - (time.monotonic() - self.began) - WRAP_UP
        if left is not None and left < WRAP_UP:
            return None
        request = SearchRequest(
            home=self.request.home,
            file=trial.axes.file([spec]),
            scenario=trial.scenario,
            variant={},
            bad=bad,
            good=good,
            run_options=self.request.options,
            budget=Budget(seconds=left),
            attribute=False,
        )
        try:
            found = search(request, self.cache, self.show)
        except UsageError:  # there is nothing older
            return None
        if found.interrupted and not self._is_over:
            raise KeyboardInterrupt
        edges = [each for each in found.boundaries if found.answer == "boundary"]
        if not edges:
            return None
        edge = edges[-1]
        return ChangedAt(
            bad=Version(edge.bad).public,
            good=Version(edge.good).public,
            confidence=edge.confidence,
            commits=edge.commits,
            untested_between=(*edge.untestable_between, *edge.different_between, *edge.untried_between),
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A script, and the releases that it runs in."""

    scenario: Scenario
    axes: SearchAxes
    python: str
    oldest: str  # releases
    claimed: str
    newest: str
    notes: tuple[str, ...]


def _has(releases: Sequence[str], version: str) -> bool:
    return not version or any(Version(each).release == Version(version).release for each in releases)


def _nearest(version: str, releases: Sequence[str]) -> str:
    """Return the release that stands for a version: of a nightly or a source build, the one that it became."""
    asked = Version(version)
    same = [each for each in releases if Version(each).release == (*asked.release, 0, 0)[:3]]
    older = [each for each in releases if Version(each).release < asked.release]
    return (same or older[-1:] or releases[:1])[0]


def _refusal(base: Answer, candidates: Sequence[Candidate], report: Report) -> Answer | None:
    """Return the answer to a report of which nothing is run; None if there is something to run."""
    if not candidates:
        return base.model_copy(
            update={
                "verdict": Verdict.INFORMATION,
                "why": "the report has no Python that could be run",
                "asks": "a script that shows it, with the version of torch and what it prints",
            }
        )
    if any(needs.uses_torch(each.tree) for each in candidates):
        return None
    base = base.model_copy(update={"script": candidates[0].source, "added": candidates[0].added})
    if found := [what for each in candidates for what in needs.dangers(each.tree)]:
        tried = ", ".join(dict.fromkeys(found))
        return base.model_copy(
            update={
                "verdict": Verdict.REFUSED,
                "why": f"the script uses nothing of torch, and {tried}: it was not run",
                "blocked": tuple(dict.fromkeys(found)),
                "asks": "a script that shows the failure of torch and does none of that",
            }
        )
    if hardware := next(filter(None, (needs.hardware(each.tree, [report.whole]) for each in candidates)), ""):
        return base.model_copy(update={"verdict": Verdict.HARDWARE, "why": f"the script needs {hardware}"})
    return base.model_copy(
        update={
            "verdict": Verdict.INFORMATION,
            "why": "no code of the report uses torch",
            "asks": "a script that shows the failure",
        }
    )


def _lacks(base: Answer, candidate: Candidate, report: Report) -> Answer | None:
    """Return the answer if a script cannot run here for what it needs; None if it can."""
    tree = candidate.tree
    base = base.model_copy(update={"script": candidate.source, "added": candidate.added})
    if hardware := needs.hardware(tree, [report.whole]):
        asks = f"a run on a machine with {hardware}, or a script that fails on the CPU"
        update = {"verdict": Verdict.HARDWARE, "why": f"the script needs {hardware}", "asks": asks}
        return base.model_copy(update=update)
    if data := needs.data(tree):
        asks = f"a script that makes its own input instead of {data}"
        return base.model_copy(update={"verdict": Verdict.INFORMATION, "why": f"the script needs {data}", "asks": asks})
    return None


def _better(one: Answer | None, other: Answer) -> Answer:
    """Return the answer that says more, of two that do not show the reported failure; the first of equals."""
    order = (Verdict.ANOTHER, Verdict.NOT_SEEN, Verdict.UNKNOWN, Verdict.HARDWARE, Verdict.INFORMATION)
    places = {verdict: place for place, verdict in enumerate(order)}
    return other if one is None or places.get(other.verdict, 9) < places.get(one.verdict, 9) else one


def _no_evidence(cell: Cell, stderr: str, exception: str) -> str:
    """Return why a failure says nothing about torch: something is missing that the report does not have."""
    said = f"{cell.signature or ''} {cell.message}"
    if _NO_DEVICE.search(said):
        return "hardware: it found no accelerator"
    if _NO_NETWORK.search(said):
        return "data: it needs the network, which it does not have here"
    if module := missing_module(cell.signature, cell.message):
        return f"package: the module {module!r} is not known"
    if exception in {"NameError", "SyntaxError", "IndentationError"}:
        return f"script: it is not complete: {cell.message}"
    if exception == "FileNotFoundError":
        return f"data: {cell.message}"
    return "script: it needs other arguments" if "usage: " in stderr and not exception else ""


def _words_of(cell: Cell, chain: Sequence[RaisedException]) -> str:
    """Return what a cell shows: the exception that the script ends with, and where its first cause is raised."""
    shown = described(cell.signature, cell.message) or cell.reason or ""
    last = f"{chain[0].name}: {chain[0].first_line}" if chain else ""
    return shown if shown.startswith(last) else f"{last}; first {shown}"


_ASKS = {
    "hardware": (Verdict.HARDWARE, "a script that fails on the CPU"),
    "data": (Verdict.INFORMATION, "a script that makes its own input"),
    "package": (Verdict.INFORMATION, "a script without that package, or where it can be had"),
    "script": (Verdict.INFORMATION, "the whole script, and how it is started"),
}


def judged(base: Answer, here: Sighting, newest: Sighting, claims: Claims) -> Answer:
    """Return the answer that two sightings give."""

    def said(verdict: Verdict, why: str, asks: str = "") -> Answer:
        return base.model_copy(update={"verdict": verdict, "why": why, "asks": asks})

    for each in (here, newest):
        kind, _, what = each.why.partition(": ")
        if kind in _ASKS and not (here.is_as_claimed or newest.is_as_claimed):
            verdict, asks = _ASKS[kind]
            return said(verdict, f"in {each.version} the script fails for another reason: {what}", asks)
    environment = here.environment
    if here.outcome is ShownOutcome.OTHER and environment is not None and not environment.is_usable:
        if base.packages:
            names = ", ".join(base.packages)
            asks = f"a script without {names}, or where these versions can be had"
            return said(Verdict.INFORMATION, f"the packages that it needs cannot be had: {names}", asks)
        return said(Verdict.UNKNOWN, f"torch {here.version} cannot be installed here: {here.failure}")
    same = here.version == newest.version
    claim = claims.claim
    if claim.is_printed and not claim.seen and {here.is_as_claimed, newest.is_as_claimed} == {True}:
        why = f"{claim.expected} is printed nowhere, and the report does not say what is printed instead"
        return said(Verdict.UNKNOWN, why, "what the script prints, and what it should print")
    if here.is_as_claimed and newest.is_as_claimed:
        where = f"in {here.version}" if same else f"in {here.version} and in {newest.version}, the newest"
        return said(Verdict.REPRODUCES, f"it reproduces {where}")
    if here.is_as_claimed and newest.outcome is ShownOutcome.PASS:
        return said(Verdict.FIXED, f"it reproduces in {here.version}, and passes in {newest.version}")
    if here.is_as_claimed:
        return said(
            Verdict.REPRODUCES,
            f"it reproduces in {here.version}; {newest.version} shows something else: {newest.failure}",
        )
    if newest.is_as_claimed and here.outcome is ShownOutcome.PASS:
        return said(Verdict.REPRODUCES, f"it passes in {here.version}, and reproduces in {newest.version}")
    if newest.is_as_claimed:
        return said(Verdict.REPRODUCES, f"it reproduces in {newest.version}; {here.words}: {here.failure}")
    if ShownOutcome.OTHER in {here.outcome, newest.outcome}:
        other = here if here.outcome is ShownOutcome.OTHER else newest
        return said(Verdict.UNKNOWN, f"in {other.version} it cannot be judged: {other.failure or 'it is too slow'}")
    if here.outcome is not ShownOutcome.PASS:
        report = f"; {here.why}" if here.why else ""
        return said(Verdict.ANOTHER, f"{here.version} shows another failure, {here.failure}{report}")
    if newest.outcome is not ShownOutcome.PASS:
        return said(Verdict.ANOTHER, f"it passes in {here.version}; {newest.version} shows {newest.failure}")
    if claims.is_about_speed and claim.outcome is None and not claim.is_printed:
        why = "the script passes, and the report is about speed or memory, which no outcome tells"
        return said(Verdict.UNKNOWN, why, "a number to compare; `whichtorch bisect --measure` searches for its change")
    where = here.version if same else f"{here.version} and {newest.version}"
    where += f", {FLAKY_RUNS} times each" if claims.is_flaky else ""
    return said(Verdict.NOT_SEEN, f"the script passes in {where}", "what else the failure needs")


def with_boundary(answer: Answer) -> Answer:
    """Return an answer whose sentence names the releases between which the failure comes or goes."""
    if (edge := answer.boundary) is None:
        return answer
    is_fix = Version(edge.bad) < Version(edge.good)
    last, first = ("fails", "passes") if is_fix else ("passes", "fails")
    ends = (edge.bad, edge.good) if is_fix else (edge.good, edge.bad)
    return answer.model_copy(
        update={"why": f"{answer.why}: {ends[0]} is the last that {last}, {ends[1]} the first that {first}"}
    )

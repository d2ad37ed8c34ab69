"""A chain: the runs of a script that share one set of compiler caches, made one after another as one attempt."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import PreventedError
from whichtorch.base.version_parsing import parse_version
from whichtorch.matrix.attempt import record_of
from whichtorch.matrix.cached_files import BEFORE, CACHES, SharedFolder, WrittenCaches
from whichtorch.model import Attempt, ChainEvidence, Environment, Outcome, Record, Request, Role, StoppedBy

if TYPE_CHECKING:
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.matrix.variation import AttemptRequest
    from whichtorch.records.store import RunStore
    from whichtorch.suite.chain import Chain

    # `run_attempt`, in a folder
    RunOnce = Callable[[PlannedCell, Environment, AttemptRequest, Path], Record | None]


def run_chain(
    planned: PlannedCell,
    environment: Environment,
    order: AttemptRequest,
    run_once: RunOnce,
    store: RunStore,
    written: WrittenCaches,
) -> Record | None:
    """Make an attempt of a cell that is a chain of runs; return the record of the run that decided.

    It is None where the attempt was interrupted. `written` has what other environments have cached.
    """
    chain = planned.chain
    assert chain is not None
    folder = store.attempt_folder()
    own = SharedFolder(folder.with_suffix(".chain"))
    made = CacheChain(planned, environment, order, run_once, store, chain, folder, own)
    try:
        record = made.run_elsewhere_first(written) if chain.writer else made.run()
    except OSError as error:
        hint = "make room there, or name another folder with WHICHTORCH_HOME"
        raise PreventedError(f"the caches of a chain cannot be written: {error}", hint=hint) from error
    finally:
        shutil.rmtree(own.place, ignore_errors=True)
    if record is None:
        shutil.rmtree(folder, ignore_errors=True)
    return record


class _Cancelled(Exception):  # noqa: N818 - it is no error
    """The attempt was cancelled while its run was repeated."""


@dataclass(slots=True)
class CacheChain:
    """An attempt that consists of several runs, while it is made."""

    planned: PlannedCell
    environment: Environment
    order: AttemptRequest
    run_once: RunOnce
    store: RunStore
    chain: Chain
    folder: Path  # of the attempt
    place: SharedFolder

    def run(self) -> Record | None:
        """Make all runs, until one goes wrong."""
        self.place.make()
        return self._rest(None)

    def run_elsewhere_first(self, written: WrittenCaches) -> Record | None:
        """Make the first run in another environment, unless that was done before, and the others in this one."""
        writer = self.planned.writer
        assert writer is not None
        with written.lent(writer, self.planned, self.place) as lent:
            self.place = lent.place
            record = lent.first_run(lambda: self._first_run(writer, written))
            if record is not None and record.attempt.outcome is Outcome.PASS:
                return self._rest(record)
        if record is None:
            return None
        attempt = self._told(record.attempt, self._evidence(1, [record.attempt.seconds]))
        return record_of(self.planned, self.environment, attempt, record.signature)

    def _first_run(self, writer: Request, written: WrittenCaches) -> Record | None:
        """Return the record of the first run, in the environment that writes the caches."""
        cancelled = self.order.cancelled
        with written.environment(writer, cancelled) as environment:
            if environment.is_usable:
                elsewhere, folder = replace(self.planned, request=writer), self.store.attempt_folder()
                return replace(self, planned=elsewhere, environment=environment)._run(1, folder)
            if cancelled and cancelled.is_set():
                return None
        why = f"its first run cannot be made: {environment.label} is {environment.outcome}: {environment.reason}"
        attempt = Attempt(outcome=Outcome.ERROR, seconds=0, stopped_by=StoppedBy.EXIT, note=why)
        return record_of(self.planned, self.environment, attempt, None)

    def _rest(self, record: Record | None) -> Record | None:
        """Make the runs after that of a record until one fails. Return the record of that one, or of the last."""
        seconds = [record.attempt.seconds] if record else []
        read, last, reads = Counter[str](), Counter[str](), None
        for run in range(len(seconds) + 1, self.chain.runs + 1):
            if run > 1 and self._looks_for_culprit:
                self.place.keep(BEFORE)
            reads = self.place.watch() if run > 1 else None
            folder = self.folder if run == self.chain.runs else self.folder / f"run{run}"
            record = self._run(run, folder)
            if record is None:
                return None
            seconds.append(record.attempt.seconds)
            last = reads.read() if reads else last
            read += last
            if record.attempt.outcome is not Outcome.PASS:
                break
        assert record is not None
        chain = self._evidence(run, seconds)
        if reads is not None:
            update = {"cached": dict(reads.cached), "read": None if reads.problem else dict(read)}
            chain = chain.model_copy(update=update | ({"problem": reads.problem} if reads.problem else {}))
            if record.attempt.outcome.is_red and self._looks_for_culprit:
                chain = chain.model_copy(update=self._culprit(run, reads.cached if reads.problem else last))
        return record.model_copy(update={"attempt": self._told(record.attempt, chain)})

    @property
    def _looks_for_culprit(self) -> bool:
        return self.order.role is Role.JUDGE and not self.planned.options.in_search

    def _evidence(self, run: int, seconds: list[float]) -> ChainEvidence:
        writer = self.planned.writer
        facts = {"run": run, "runs": self.chain.runs, "seconds": seconds} | ({"writer": writer.label} if writer else {})
        facts |= {"writer_interpreter": str(writer.interpreter)} if writer and writer.interpreter else {}
        if writer and not writer.interpreter and parse_version(self.chain.writer) is None:
            facts |= {"writer_options": writer.options}
        return ChainEvidence.model_validate(facts)

    def _told(self, attempt: Attempt, chain: ChainEvidence) -> Attempt:
        """Return an attempt whose note names the run that decided. A pass gets the seconds of all runs."""
        is_pass = attempt.outcome is Outcome.PASS
        note = "; ".join(filter(None, (chain.problem if is_pass else chain.words, attempt.note)))
        update = {"note": note, "evidence": attempt.evidence.model_copy(update={"chain": chain})}
        return attempt.model_copy(update=update | ({"seconds": round(sum(chain.seconds), 3)} if is_pass else {}))

    def _run(self, run: int, folder: Path, variables: Mapping[str, str] | None = None) -> Record | None:
        """Make one run, with its files in a folder."""
        folder.mkdir(exist_ok=True)
        planned = self.planned.configured({**self.chain.variables(run), **(variables or {})})
        order = replace(self.order, scratch=self.place.shared, caches=self.place.shared)
        return self.run_once(planned, self.environment, order, folder)

    def _culprit(self, run: int, read: Collection[str]) -> dict[str, str]:
        """Return the first cache without which a failing run passes, and what was seen, in words."""
        suspects = [name for name in self.place.names if name in read]
        switches = {row.name: row.switch for row in CACHES.values()}
        trials = itertools.count(1)

        def passes(emptied: Collection[str] = (), switch: str = "") -> bool:
            self.place.restore(BEFORE, emptied)
            name, _, value = switch.partition("=")
            folder = self.folder / f"again{next(trials)}"
            record = self._run(run, folder, {name: value} if switch else {})
            if record is None:
                raise _Cancelled
            return record.attempt.outcome is Outcome.PASS

        try:
            if suspects and passes():
                return {"cure": "it passes when it is run again with the same caches"}
            for name in suspects:
                if passes([name]):
                    with_switch = switches.get(name) and passes(switch=switches[name])
                    more = f"; with {switches[name]} it passes" if with_switch else ""
                    return {"culprit": name, "cure": f"it passes if {name} is emptied{more}"}
            if not suspects:
                return {"cure": "it has read no cache"}
            all_emptied = passes(self.place.names)
        except _Cancelled:  # the run is over, and what it came to is known
            return {"cure": "not known which cache it was: interrupted"}
        return {
            "cure": "it passes only with all caches emptied" if all_emptied else "it fails even with all caches emptied"
        }

"""A case as one file, and that file run elsewhere, to see whether it reproduces."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from pydantic import ValidationError

from whichtorch.base.errors import UsageError
from whichtorch.failures.failure import Changed
from whichtorch.matrix.planning import RunOptions
from whichtorch.matrix.variation import Variation
from whichtorch.model import Model, name_of_test
from whichtorch.process.marks import temporary_folder
from whichtorch.process.sandbox import Sandbox
from whichtorch.suite import selection
from whichtorch.triage.case import FILE, Case
from whichtorch.triage.places import CasePlace, CaseTest, opened_case

if TYPE_CHECKING:
    from whichtorch.base.redaction import Redactor
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model.events import Show

ARCHIVE = "case.zip"
MOST_BYTES = 20_000_000  # of a file in it
MOST_UNPACKED = 100_000_000  # bytes of all files
RUNS = 2


def pack(folder: Path, redactor: Redactor) -> Path:
    """Write all files of a case's folder into its archive, redacted, and return that; what is too large is left out."""
    archive = folder / ARCHIVE
    part = folder / f".{ARCHIVE}.part"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:
        for path in _files(folder):
            file.writestr(str(path.relative_to(folder)), redactor.data(path.read_bytes()))
    part.replace(archive)
    return archive


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_own = path.is_file() and not path.is_symlink() and path.name != ARCHIVE
        is_kept = is_own and "__pycache__" not in path.parts and not path.name.startswith(".")
        if is_kept and path.stat().st_size <= MOST_BYTES:
            yield path


def packed_case(archive: Path) -> Case:
    """Return the case that an archive holds; raises UsageError for what is no case."""
    with _opened(archive) as file:
        return _read(archive, file)


def unpack(archive: Path, folder: Path) -> Case:
    """Unpack a case into an empty folder and return it; raises as `packed_case`.

    `zipfile` keeps what it writes within the folder, whatever names an archive holds.
    """
    with _opened(archive) as file:
        case = _read(archive, file)
        file.extractall(folder)
        return case


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as file:
            if sum(info.file_size for info in file.infolist()) > MOST_UNPACKED:
                raise UsageError(f"{archive} unpacks to more than {MOST_UNPACKED // 10**6} MB", hint="it is no case")
            yield file
    except (OSError, zipfile.BadZipFile, RuntimeError) as error:  # RuntimeError: it wants a password
        raise UsageError(f"{archive} cannot be read as a case: {error}") from None


def _read(archive: Path, file: zipfile.ZipFile) -> Case:
    if FILE not in file.namelist():
        raise UsageError(f"{archive} cannot be read as a case: it holds no {FILE}")
    try:
        case = Case.model_validate_json(file.read(FILE))
    except ValidationError as error:
        mistakes = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise UsageError(f"{archive} holds no case of this form: {mistakes}") from None
    if PurePath(case.script).name != case.script:  # a stranger's case may name a script of the user's
        raise UsageError(f"{archive} holds no case of this form: script: {case.script!r} is no name of a file in it")
    return case


class Replayed(Model):
    """What came of a case elsewhere."""

    schema_: int = 1
    name: str
    environment: str
    script: str  # of the case, that was run, with its variant
    expected: str  # outcome and signature in the case
    seen: tuple[str, ...]  # likewise, of each run here
    reproduces: bool | None  # None: nothing was learnt about torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Which case is to be run, and where."""

    archive: Path
    whole: bool = False  # the script as it was, instead of the smallest
    sandbox: Sandbox = Sandbox.BUBBLEWRAP
    place: CasePlace


def replay(order: ReplayRequest, cache: EnvironmentCache, show: Show) -> Replayed:
    """Unpack a case into a folder of its own and run its script there.

    Raises UsageError for what is no case or holds no failure, and as `triage`.
    """
    with temporary_folder() as folder:
        case = unpack(order.archive, folder)
        if case.reproduction is None or not case.reproduction.outcome.is_red:
            raise UsageError(f"{order.archive} holds no failure", hint="take the step `reproduce` of its triage first")
        script = folder / (case.script if order.whole else case.smallest)
        scenario = selection.with_arguments(selection.script(str(script)), case.arguments)
        scenario = scenario.model_copy(update={"requirements": case.requirements})
        if order.sandbox is not Sandbox.OFF:
            scenario = scenario.in_sandbox()
            if foreign := [text for text in case.overrides if Requirement(text).url]:
                hint = "name the wheel yourself with --override, or give --sandbox off"
                raise UsageError(f"the case overrides {', '.join(foreign)}, installed outside its sandbox", hint=hint)
        test = CaseTest(scenario=scenario, variant=case.variant, options=RunOptions(sandbox=order.sandbox))
        limit = case.reproduction.limit
        expected = case.reproduction.failure
        known = case.reproduction.shape if order.whole else case.smallest_failure
        file = order.place.file.for_script(scenario)
        variables = case.variables | dict(file.needs.variables)
        overrides = file.needs.overrides or case.overrides
        needs = replace(file.needs, variables=tuple(variables.items()), overrides=overrides)
        place = replace(order.place, beside=folder, file=file.model_copy(update={"needs": needs}))
        with opened_case(place, test, cache, show) as runs:
            made = [runs.run(limit, Variation(in_scratch=True)) for _ in range(RUNS)]
            label = runs.environment.label
    records = [run.record for run in made]
    told = [run for run in made if not run.record.attempt.outcome.is_prevented]
    # a case of before holds no more of its failure than the signature
    failure, changed = (known, Changed.SCRIPT_AND_RELEASE) if known else (expected, Changed.RELEASE)
    return Replayed(
        name=case.name,
        environment=label,
        script=name_of_test(script.name, case.variant),
        expected=f"{expected.outcome.word} {expected.signature or ''}".strip(),
        seen=tuple(f"{record.attempt.outcome.word} {record.signature or ''}".strip() for record in records),
        reproduces=any(failure.compare(run.failure, changed) for run in told) if told else None,
    )

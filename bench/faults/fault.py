"""A fault, and what came of it."""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench.faults.ground import BrokenError, Fields, Ground

AT_ONCE = 3  # faults; most of their time they wait
REPORTING = threading.Lock()


class NotHereError(Exception):
    """The machine lacks what the fault needs."""


class NotStruckError(Exception):
    """What the fault was to strike never came."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and what is checked."""

    family: str
    name: str
    strike: Callable[[Fields, Ground, Moment], None]  # raises BrokenError
    at_moments: bool = False  # again and again, each time at another moment


@dataclass(frozen=True)
class Moment:
    """When a fault strikes."""

    dice: random.Random


@dataclass
class Report:
    """What came of a fault."""

    fault: Fault
    times: int = 0  # that it struck
    missed: int = 0
    broken: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def text(self) -> str:
        if self.skipped:
            return f"not tried: {self.skipped}"
        kept = f"kept {self.times - len(self.broken)} of {self.times}" if self.times else ""
        missed = f"in time at {self.times} of {self.times + self.missed} moments" if self.missed else ""
        return ", ".join(filter(None, (kept, missed)))


def strike_all(fields: Fields, faults: Iterable[Fault], moments: int) -> list[Report]:
    """Let each fault strike, those at moments so many times; return what came of each, in order."""
    reports = [Report(fault) for fault in faults]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for report in reports:
            for number in range(moments if report.fault.at_moments else 1):
                pool.submit(_strike, fields, report, number)
    return reports


def _strike(fields: Fields, report: Report, number: int) -> None:
    fault, since = report.fault, time.monotonic()
    seed = f"{fields.seed} {fault.family} {fault.name} {number}"
    ground = fields.ground()
    problem = missed = skipped = ""
    try:
        fault.strike(fields, ground, Moment(random.Random(seed)))
    except NotHereError as error:
        skipped = f"not tried: {error}"
        report.skipped = str(error)
    except NotStruckError as error:
        missed = f"not struck: {error}"
    except BrokenError as error:
        problem = str(error)
    except Exception:  # noqa: BLE001  a fault that cannot be tried is shown, and the others go on
        problem = traceback.format_exc()
    finally:
        ground.clear()
    with REPORTING:
        report.times += not (missed or skipped)
        report.missed += bool(missed)
        report.broken += [problem] if problem else []
    said = skipped or missed or problem or "kept"
    seconds = time.monotonic() - since
    print(f"{fault.family}: {fault.name} {number}, {seconds:.1f} s: {said}", file=sys.stderr, flush=True)
    if not problem:
        ground.remove()

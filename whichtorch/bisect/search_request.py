"""The axes that can be searched, the type that they share, and the request for a search.

A new axis is a module in `whichtorch/bisect/axes` with a function `search`, and a row here.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import max_time, option
from whichtorch.base.row_enum import RowEnum
from whichtorch.matrix.options import RunOptions
from whichtorch.search.search_state import SearchOptions

if TYPE_CHECKING:
    from whichtorch.environments.matrix_file import MatrixFile
    from whichtorch.matrix.work import Machines
    from whichtorch.measure.measure import Measure
    from whichtorch.model import Request, Scenario

BUILD_TIMEOUT = 14400.0  # seconds: all of torch takes an hour on eight cores


@dataclass(frozen=True, slots=True)
class AxisRow:
    """How an axis is chosen and searched."""

    module: str  # in whichtorch.bisect.axes; its function `search` takes what `search_axis` takes
    is_ordered: bool = True  # False: no value lies between two others, so every value is tried
    has_branches: bool = False  # neighbors in its order need not be parent and child
    options: tuple[str, ...] = ()  # each of these selects the axis; () for an axis that `--axis` selects
    runs_on_cluster: bool = True  # False: it needs files that only this machine has
    takes_one_torch: bool = False  # torch stays the same along it


class AxisName(RowEnum):
    """What was searched."""

    VERSION = "version", AxisRow("versions")
    DATE = "date", AxisRow("days")
    COMMIT = "commit", AxisRow("commits", has_branches=True, options=("--git",), runs_on_cluster=False)
    LOCK = "lock", AxisRow("packages", options=("--good FILE", "--bad FILE"))
    PACKAGE = "package", AxisRow("package_releases", options=("--package",), takes_one_torch=True)
    CONFIG = "config", AxisRow("values", is_ordered=False, takes_one_torch=True)
    PYTHON = "python", AxisRow("values", is_ordered=False, takes_one_torch=True)
    BUILD = "build", AxisRow("values", is_ordered=False, takes_one_torch=True)

    row: AxisRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The environments to search, from old to new if the axis has an order."""

    name: AxisName
    values: tuple[str, ...]  # the names of the positions
    requests: "tuple[Request, ...]" = ()
    subjects: Mapping[str, str] = field(default_factory=dict)  # by value: the first line of a commit message
    package: str = "torch"  # what its releases, if it has any, are releases of
    released: tuple[str, ...] = ()  # all releases that there are, also those that are not searched
    common: dict[str, str] = field(default_factory=dict)  # what all environments share

    def request(self, position: int) -> "Request":
        """Return the request for a position. This may ask an index; if that fails, the request has a problem."""
        return self.requests[position]

    def known_request(self, position: int) -> "Request | None":
        """Return the request if it is known without asking an index, else None."""
        return self.requests[position]

    def unasked(self, first: str, last: str) -> tuple[str, ...]:
        """Return the releases between two values that are not among the values."""
        from packaging.version import Version  # --help does not wait for it

        asked = {Version(value).public for value in self.values} if self.released else ()
        between = (each for each in self.released if Version(first) < Version(each) < Version(last))
        return tuple(each for each in between if Version(each).public not in asked)

    def nearest(self, value: str) -> int:
        """Return the position of a version; of one that does not exist, that of the next newer one.

        Raises UsageError if it is not one.
        """
        from packaging.version import InvalidVersion, Version

        try:
            wanted = Version(value)
        except InvalidVersion:
            raise UsageError(f"{value!r} is no version", hint=f"write it as {self.values[0]}") from None
        # 2.9.0+cpu is the next one after 2.9.0
        return min(bisect_left(self.values, wanted, key=Version), len(self.values) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a search; None for no limit."""

    seconds: float | None = max_time(panel="Budget")
    installs: int | None = option(
        "--max-installs", metavar="N", least=1, panel="Budget", help="Make at most N installs."
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A git history, and how its commits are built."""

    checkout: Path
    command: str | None  # for the shell, in the checkout's top folder; None: they are laid over wheels
    interpreter: Path | None = None  # the Python that sees the build; None: the checkout's own .venv
    timeout: float = BUILD_TIMEOUT  # seconds, of one build


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A search: the test, the axis, the failure and the limits."""

    home: Path
    file: "MatrixFile"  # its axes name one build, Python and config, and the versions to search
    scenario: "Scenario"
    variant: dict[str, str]
    axis: AxisName = AxisName.VERSION
    good: str | None = None  # bounds: values of the axis
    bad: str | None = None
    goal: SearchOptions = field(default_factory=SearchOptions)
    failure: str = ""  # text of the failure to look for; "" for the failure at the newest change
    any_failure: bool = False
    run_options: RunOptions = field(default_factory=RunOptions)  # of each attempt
    budget: Budget = field(default_factory=Budget)
    jobs: int = 1
    fresh: bool = False
    machines: "Machines | None" = None  # None: this one
    measure: "Measure | None" = None  # the number whose change is searched; None: the outcome's
    # of one axis each
    values: tuple[str, ...] = ()  # an axis without order; () for the usual values
    days: tuple[date, date] | None = None
    sides: tuple[Path, Path] | None = None  # packages, good and bad: lock files, or the Pythons of environments
    source: Source | None = None  # commits
    package: str | None = None  # a requirement: the releases of a package that are searched
    attribute: bool = True  # find out which of the packages that changed together it was


def common(request: "Request") -> dict[str, str]:
    """Return what all the environments of a search share."""
    patch = {} if request.patch is None else {"patch": request.patch.title}
    added = {"with": " ".join(request.added)} if request.added else {}
    options = zip(request.added_options[::2], request.added_options[1::2], strict=True)
    variables = " ".join(value for name, value in options if name == "--env")
    added |= {"override": " ".join(request.overrides)} if request.overrides else {}
    added |= {"env": variables} if variables else {}
    return {"build": request.build.name, "python": request.python, "config": request.config.name, **patch, **added}


def day_named(text: str) -> date:
    """Return the day that "2026-11-01" means; raises UsageError."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no day", hint="write it as 2026-11-01") from None

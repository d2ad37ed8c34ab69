"""What is measured of a run: the kinds of numbers, and how users name them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from pydantic import Field

from whichtorch.base.errors import UsageError
from whichtorch.base.row_enum import RowEnum
from whichtorch.model import Model
from whichtorch.model.record import ValueChange  # noqa: TC001
from whichtorch.search.step_search import Threshold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.model import Measurement
    from whichtorch.search.step_search import Estimate

NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf(?:inity)?)"
# numbers of which more is better, by the words in their names
_GOOD = re.compile(
    r"/s\b|per_?s|throughput|bandwidth|flops|speed|fps|qps|ips\b|tokens|samples|acc|score|bleu|rouge|psnr|ssim|auc|\bf1|mfu",
    re.IGNORECASE,
)
# numbers that no wait for a core changes, by the words in their names
_TIMELESS = re.compile(
    r"loss|acc|score|bleu|rouge|psnr|ssim|auc|\bf1|perplex|ppl|err|norm|mem|bytes|[kmg]i?b\b|size|count|level",
    re.IGNORECASE,
)
DILUTION = 0.1  # share of a change of torch that the rest of a script may hide
_CHANGE = re.compile(r"\s*(\+-|[+-]?)\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)\s*(%?)\s*")


@dataclass(frozen=True, slots=True)
class KindRow:
    """What is true of all measures of a kind."""

    unit: str
    is_ratio: bool = True  # False: values are compared by their difference
    worse: float = 0.05  # how much worse counts if nobody says


class MeasureKind(RowEnum):
    """The kinds of numbers."""

    WALL = "wall", KindRow("s")  # after the import of torch
    CPU = "cpu", KindRow("s")  # likewise, with children that have ended
    IMPORT = "import", KindRow("s")  # of `import torch`
    IMPORT_MEMORY = "import-memory", KindRow("MB")  # that `import torch` adds, without the pages of libraries
    COMPILE = "compile", KindRow("s")  # in torch.compile, by torch's own clocks, without garbage collections
    PEAK = "peak", KindRow("MB")  # most memory of the script's process, without children
    GROWTH = "growth", KindRow("kB a line", is_ratio=False, worse=10)  # per line printed
    OUTPUT = "output", KindRow("", is_ratio=False)  # the largest difference from the reference's output
    PRINTED = "printed", KindRow("")  # a number that the script prints

    row: KindRow


class Measure(Model):
    """A number of a run, and when it is worse."""

    name: str
    kind: MeasureKind
    pattern: str = ""  # of a printed number, with one group; of growth: of the lines that are steps
    more_is_better: bool = False
    change: float = 0.05  # how large a difference counts: a share, or in the measure's unit
    is_share: bool = Field(default=True, description="whether `change` is a share of the reference's value")
    either_way: bool = False  # a change in the good direction counts, too

    @classmethod
    def of(cls, number: Measurement) -> Self:
        """Return what says how a number that was stored compares with another one."""
        return cls(
            name=number.name,
            kind=MeasureKind.PRINTED,
            more_is_better=number.more_is_better,
            change=number.threshold,
            is_share=number.is_share,
            either_way=number.either_way,
        )

    @property
    def is_time(self) -> bool:
        """Whether it grows or falls where a core is missing."""
        timed = {MeasureKind.WALL, MeasureKind.IMPORT, MeasureKind.COMPILE}
        return self.kind in timed or (self.kind is MeasureKind.PRINTED and not _TIMELESS.search(self.name))

    @property
    def unit(self) -> str:
        """The unit of its values, "" where the script decides."""
        return self.kind.row.unit

    def on_scale(self, value: float) -> float:
        """Return a value on the scale of differences, on which more is worse. Raises ValueError where it has none."""
        sign = -1.0 if self.more_is_better else 1.0
        if not self.is_share:
            return sign * value
        if not value > 0:
            raise ValueError(f"{self.name} is {value:g}, and a share of that says nothing")
        return sign * math.log(value)

    def change_in(self, found: Estimate) -> ValueChange:
        """Return an estimate on that scale as changes of the value, shares of it or in its unit: center, low, high."""
        sign = -1.0 if self.more_is_better else 1.0
        center, *ends = (
            (math.expm1(sign * each) if self.is_share else sign * each) + 0.0  # no negative zero
            for each in (found.center, found.low, found.high)
        )
        return center, min(ends), max(ends)

    def words(self, found: Estimate) -> str:
        """Return an estimate as people write it: `+7.2 % [5.9, 8.4]`."""
        return change_words(self.change_in(found), self.unit, is_share=self.is_share)

    @property
    def threshold(self) -> Threshold:
        """How large a difference on that scale counts."""
        size = self.change
        if self.is_share:
            size = -math.log1p(-size) if self.more_is_better and not self.either_way else math.log1p(size)
        return Threshold(size=size, either_way=self.either_way)

    @property
    def search_threshold(self) -> Threshold:
        """The same for a search: 10 % less for a whole script, whose own work dilutes a change of torch."""
        is_diluted = self.kind in {MeasureKind.WALL, MeasureKind.CPU, MeasureKind.PEAK}
        return replace(self.threshold, slack=DILUTION) if is_diluted else self.threshold


def change_words(change: ValueChange | None, unit: str, *, is_share: bool) -> str:
    """Return a change of a value, with its interval."""
    if change is None:
        return "too few runs to compare"
    if is_share and max(change) > 1:  # more than twice
        center, low, high = (f"{1 + each:.3g}" for each in change)
        unit = " times"
    else:
        scale, unit = (100.0, " %") if is_share else (1.0, f" {unit}".rstrip())
        center, low, high = (f"{each * scale:+.3g}" for each in change)
    return f"{center}{unit}" if low == high else f"{center}{unit} [{low}, {high}]"


def measures_named(names: Sequence[str], pattern: str | None, worse: str | None) -> tuple[Measure, ...]:
    """Return the measures that options name. Raises UsageError that lists all that is wrong with them."""
    wrong: list[str] = []
    sign, size = _change(worse, wrong)
    wrong += [f"--measure {name}: that is no name" for name in names if name.startswith("-")]
    known = {str(kind): kind for kind in MeasureKind if kind is not MeasureKind.PRINTED}
    kinds = {name: known.get(name, MeasureKind.PRINTED) for name in names}
    searched = [kind for kind in kinds.values() if kind in {MeasureKind.PRINTED, MeasureKind.GROWTH}]
    if pattern is not None:
        wrong += _problems(pattern, has_number=MeasureKind.GROWTH not in searched)
        if len(searched) != 1:
            what = "one number that the script prints, or for growth"
            wrong.append(f"--pattern is for {what}, and --measure names {len(searched)}")
    if MeasureKind.OUTPUT in kinds.values() and size is None:
        wrong.append("--measure output needs --worse, the largest difference that is none")
    if wrong:
        raise UsageError("\n".join(wrong))
    measures = []
    for name, kind in kinds.items():
        change, is_share = size or (kind.row.worse, kind.row.is_ratio)
        if is_share and not kind.row.is_ratio:
            raise UsageError(f"--measure {name} has no value to take a share of", hint="give a number without %")
        is_better = sign == "-" if sign else kind is MeasureKind.PRINTED and bool(_GOOD.search(name))
        either_way = sign == "+-" or kind is MeasureKind.OUTPUT
        if is_better and not either_way and is_share and change >= 1:
            raise UsageError(f"--worse {worse}: {name} cannot fall by so much", hint="give less than 100%")
        used = {MeasureKind.PRINTED: pattern or printed_pattern(name), MeasureKind.GROWTH: pattern or ""}.get(kind, "")
        measures.append(
            Measure(
                name=name,
                kind=kind,
                pattern=used,
                more_is_better=is_better,
                change=change,
                is_share=is_share,
                either_way=either_way,
            )
        )
    return tuple(measures)


def printed_pattern(name: str) -> str:
    """Return the pattern of a number that is printed as `NAME=1.5`, `NAME: 1.5` or as a member of JSON."""
    return rf"(?<![\w.]){re.escape(name)}[\"']?\s*[=:]\s*({NUMBER})"


def _change(text: str | None, wrong: list[str]) -> tuple[str, tuple[float, bool] | None]:
    """Return the sign of a change, "" where it has none, and how large it is, and whether that is a share."""
    if text is None:
        return "", None
    found = _CHANGE.fullmatch(text)
    size = float(found[2]) / (100 if found[3] else 1) if found else 0.0
    if found is None or not 0 < size < math.inf:
        wrong.append(f"--worse {text}: write how large a change counts, as 10% or as a positive number")
        return "", None
    return found[1], (size, bool(found[3]))


def _problems(pattern: str, *, has_number: bool) -> list[str]:
    """Return what is wrong with a pattern."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return [f"--pattern {pattern!r} is no regular expression: {error}"]
    if has_number and groups != 1:
        return [f"--pattern {pattern!r} has {groups} groups: put parentheses around the number, and nowhere else"]
    return []

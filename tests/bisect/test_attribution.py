"""Which of the packages that changed at a boundary it was, over made-up environments: what is tried, what is said."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.bisect.driving import CRASHED, FAILED, asked
from tests.fakes import PASSED, FakeCache, shows_nothing
from tests.wheels import build_wheel
from whichtorch.bisect.attribution import MIXTURES
from whichtorch.bisect.axes import versions
from whichtorch.bisect.axes.packages import pins_in
from whichtorch.bisect.bisection import Bisection, Cause
from whichtorch.model import Environment, Fingerprint, Outcome, Request
from whichtorch.process.supervision import Ending
from whichtorch.reports.bisection_text import bisection_lines

OLD = {"torch": "9.1.0", "cuda-x": "1", "jinja": "1", "lib": "1", "sympy": "1"}
NEW = {"torch": "9.2.0", "cuda-x": "2", "jinja": "2", "lib": "2", "sympy": "2"}
SAME = {"setuptools": "1"}
Packages = dict[str, str]


@dataclass
class MixedCache(FakeCache):
    """Environments with the packages of two releases, or of a lock; some sets of packages cannot be imported."""

    is_broken: Callable[[Packages], bool] = lambda _packages: False
    gpus: tuple[str, ...] = ()
    made: dict[str, Packages] = field(default_factory=dict)  # by label

    def environment(self, request: Request) -> Environment:
        pins = {name: pin.removeprefix("==") for name, pin in pins_in(request.lock).items()}
        packages = pins or {**(OLD if request.torch == OLD["torch"] else NEW), **SAME}
        self.made[request.label] = packages
        shown = {"id": request.label, "packages": packages, "fingerprint": Fingerprint(gpus=self.gpus)}
        if self.is_broken(packages):
            shown |= {"outcome": Outcome.BROKEN, "reason": "it cannot be imported"}
        return super().environment(request).model_copy(update=shown)


def searched(cache: MixedCache, end: Callable[[Packages], Ending], *, attribute: bool = True) -> Bisection:
    for version in (OLD["torch"], NEW["torch"]):
        build_wheel(cache.home / "wheels", version)
    request = asked(cache, ">=9", lambda label: end(cache.made[label]), attribute=attribute)
    return versions.search(request, cache, shows_nothing)


def failing(fails: Callable[[Packages], bool]) -> Callable[[Packages], Ending]:
    return lambda packages: FAILED if fails(packages) else PASSED


@pytest.mark.parametrize(
    ("fails", "cause", "words"),
    [
        (lambda has: has["torch"] == "9.2.0", Cause.ITSELF, "by torch itself"),
        (lambda has: has["lib"] == "2", Cause.COMPANION, "by lib 1 -> 2 that came with it"),
        (
            lambda has: has["torch"] == "9.2.0" and has["lib"] == "2",
            Cause.TOGETHER,
            "by torch together with lib 1 -> 2",
        ),
        (
            lambda has: has["torch"] == "9.2.0" or has["lib"] == "2",
            Cause.EITHER,
            "by torch itself, and by lib 1 -> 2 alone as well",
        ),
    ],
)
def test_a_change_is_attributed_to_the_package_that_makes_it(
    tmp_path: Path, fails: Callable[[Packages], bool], cause: Cause, words: str
) -> None:
    """It takes four installs beside the two releases at most; the first line says it."""
    cache = MixedCache(tmp_path)
    found = searched(cache, failing(fails))
    (boundary,) = found.boundaries
    assert boundary.attribution is not None
    assert (boundary.attribution.cause, boundary.attribution.words) == (cause, words)
    assert len(cache.made) <= 2 + MIXTURES
    assert any(line.startswith(f"broken in 9.2.0, {words}: ") for line in bisection_lines(found, 100))


def test_changes_that_only_work_together_are_told_together(tmp_path: Path) -> None:
    """Halves of the others that are tried alone must not be blamed."""
    found = searched(MixedCache(tmp_path), failing(lambda has: has["lib"] == has["jinja"] == "2"))
    attribution = found.boundaries[0].attribution
    assert attribution is not None
    assert attribution.cause is Cause.COMPANION
    assert {each.partition(" ")[0] for each in attribution.changes} >= {"lib", "jinja"}


def test_what_cannot_be_imported_is_no_evidence(tmp_path: Path) -> None:
    """Mixtures that are broken leave it open, and the answer says so."""
    cache = MixedCache(tmp_path, is_broken=lambda has: (has["torch"] == "9.2.0") is not (has["lib"] == "2"))
    found = searched(cache, failing(lambda has: has["torch"] == "9.2.0"))
    attribution = found.boundaries[0].attribution
    assert attribution is not None
    assert (attribution.cause, attribution.words) == (Cause.UNKNOWN, "")
    text = "\n".join(bisection_lines(found, 100))
    assert "it is not known whether it was torch itself or what changed with it" in text
    assert "torch 9.2.0 with jinja 1, lib 1, sympy 1: not known" in text


def test_with_the_new_release_the_old_companion_shows_who_it_was(tmp_path: Path) -> None:
    """With the old release its new version fails in another way, which says nothing."""

    def end(has: Packages) -> Ending:
        if has["lib"] == "1":
            return PASSED
        return FAILED if has["torch"] == "9.2.0" else CRASHED

    attribution = searched(MixedCache(tmp_path), end).boundaries[0].attribution
    assert attribution is not None
    assert (attribution.cause, attribution.changes) == (Cause.COMPANION, ("lib 1 -> 2",))


def test_packages_for_a_gpu_are_tried_only_where_there_is_one(tmp_path: Path) -> None:
    """They go with torch, which may not load those of another release."""
    end = failing(lambda has: has["cuda-x"] == "2")
    without = searched(MixedCache(tmp_path / "without"), end).boundaries[0].attribution
    with_gpu = searched(MixedCache(tmp_path / "with", gpus=("H100",)), end).boundaries[0].attribution
    assert without is not None
    assert without.cause is Cause.ITSELF
    assert with_gpu is not None
    assert (with_gpu.cause, with_gpu.changes) == (Cause.COMPANION, ("cuda-x 1 -> 2",))


def test_attribute_no_tries_nothing_more(tmp_path: Path) -> None:
    """The boundary then says only what changed."""
    cache = MixedCache(tmp_path)
    found = searched(cache, failing(lambda has: has["lib"] == "2"), attribute=False)
    assert found.boundaries[0].attribution is None
    assert len(cache.made) == 2


def test_the_same_search_again_tries_nothing_again(tmp_path: Path) -> None:
    """Mixtures are on record like all else."""
    cache = MixedCache(tmp_path)
    end = failing(lambda has: has["lib"] == "2")
    first, again = searched(cache, end), searched(replace(cache), end)
    assert again.boundaries == first.boundaries
    assert (first.runs > 0, again.runs) == (True, 0)


def test_what_is_left_by_elimination_is_tried_before_it_is_blamed(tmp_path: Path) -> None:
    """Either of two others is enough here, so that no single one can be put back."""

    def end(has: Packages) -> Ending:
        if has["lib"] == has["jinja"] == "1":
            return PASSED
        return FAILED if has["torch"] == "9.2.0" else CRASHED

    cache = MixedCache(tmp_path)
    attribution = searched(cache, end).boundaries[0].attribution
    assert attribution is not None
    assert attribution.cause is Cause.COMPANION
    assert {each.partition(" ")[0] for each in attribution.candidates} == {"jinja", "lib", "sympy"}
    assert len(cache.made) == 2 + MIXTURES
    assert attribution.notes == ("no more than 4 mixtures of packages are tried",)

"""Which releases a spec means."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtorch.base.errors import UsageError
from whichtorch.environments.index.releases import Listing, Release
from whichtorch.environments.index.version_specs import (
    UnknownVersionError,
    check_spec,
    find,
    select,
    split_specs,
    yanked_among,
)
from whichtorch.model import Build


def listing_of(*versions: str, yanked: tuple[str, ...] = (), aside: tuple[str, ...] = ()) -> Listing:
    """Return a listing without any index."""

    def releases(names: tuple[str, ...]) -> tuple[Release, ...]:
        return tuple(Release(version=name, filename=f"torch-{name}.whl", url=name, source="here") for name in names)

    return Listing(
        releases=releases(versions), yanked=releases(yanked), aside=releases(aside), python="3.11", sources=("here",)
    )


RELEASES = listing_of(
    "2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0rc1", yanked=("2.9.2",), aside=("2.11.0+cpu",)
)
NIGHTLIES = listing_of(*(f"2.16.0.dev202611{day:02}+cpu" for day in range(1, 21)))


def versions(spec: str, listing: Listing = RELEASES) -> list[str]:
    """Return the versions that a spec means."""
    return [release.version for release in select(spec, listing)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("2.9.1", ["2.9.1"]),
        ("2.11", ["2.11.0"]),
        ("2.12.0rc1", ["2.12.0rc1"]),
        ("2.9.2", ["2.9.2"]),
        ("2.11.0", ["2.11.0"]),
        ("2.11.0+cpu", ["2.11.0+cpu"]),
        ("latest", ["2.11.0"]),
        ("recent:3", ["2.9.1", "2.10.0", "2.11.0"]),
        ("recent:9", ["2.8.0", "2.9.1", "2.10.0", "2.11.0"]),
        (">=2.9,<2.11", ["2.9.0", "2.9.1", "2.10.0"]),
        (">=2.11", ["2.11.0"]),
        (">=2.12.0rc1", ["2.12.0rc1"]),
        ("~=2.9.0", ["2.9.0", "2.9.1"]),
    ],
)
def test_select(spec: str, expected: list[str]) -> None:
    """A spec means what it says; yanked, local and pre-releases only when named."""
    assert versions(spec) == expected


@pytest.mark.parametrize(
    ("spec", "days"),
    [
        ("nightly", [20]),
        ("latest", [20]),
        ("recent:3", [20]),
        ("nightly:2026-11-03", [3]),
        ("nightly:2026-11-18..2026-11-30", [18, 19, 20]),
        (">=2.16.0.dev20261119", [19, 20]),
        ("2.16.0.dev20261105", [5]),
    ],
)
def test_select_nightlies(spec: str, days: list[int]) -> None:
    """Nightlies are chosen by the date in their version; where there is nothing else, they are releases."""
    assert versions(spec, NIGHTLIES) == [f"2.16.0.dev202611{day:02}+cpu" for day in days]


@pytest.mark.parametrize("spec", ["2.99.0", ">=3", "nightly", "nightly:2026-11-01..2026-11-20"])
def test_select_nothing_is_an_error(spec: str) -> None:
    """A spec without a release names what is near, or where nightlies are."""
    with pytest.raises(UnknownVersionError) as error:
        select(spec, RELEASES)
    assert error.value.hint in {"the nearest are 2.11.0, 2.12.0rc1", "--build nightly-cpu has them"}


def test_a_local_version_elsewhere_is_pointed_out() -> None:
    """A plain version that only find-links have with a local part is unknown, and the error tells of it."""
    with pytest.raises(UnknownVersionError, match=r"2\.13\.0\+cpu, which is a version of its own"):
        select("2.13.0", listing_of("2.12.0", aside=("2.13.0+cpu",)))


def test_yanked_ones_are_named() -> None:
    """What a spec would mean but for the yanking is told with its reason."""
    assert yanked_among(">=2.9,<2.10", RELEASES) == [("2.9.2", "no reason given")]
    assert yanked_among("recent:3", RELEASES) == [("2.9.2", "no reason given")]
    assert yanked_among("latest", RELEASES) == []
    assert yanked_among("2.9.2", RELEASES) == []


@pytest.mark.parametrize("spec", ["foo", "", "recent:", "recent:0", "nightly:yesterday", ">=", "2.x", "=>2"])
def test_check_spec_refuses(spec: str) -> None:
    """What is no spec is a mistake of the user's, told with the forms there are."""
    with pytest.raises(UsageError, match="names no torch version"):
        check_spec(spec)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.11.0,>=2.9,<2.13,recent:3", ["2.11.0", ">=2.9,<2.13", "recent:3"]),
        (">=2.9,!=2.10.0, <2.13 ,latest", [">=2.9,!=2.10.0,<2.13", "latest"]),
        ("latest,,2.1", ["latest", "2.1"]),
        ("", []),
    ],
)
def test_split_specs(text: str, expected: list[str]) -> None:
    """Commas part specs, except between the clauses of one specifier."""
    assert split_specs(text) == expected


@given(st.lists(st.sampled_from(["2.11.0", ">=2.9", "<2.13", "recent:3", "latest", "!=2.10"]), max_size=8))
def test_split_specs_loses_nothing(parts: list[str]) -> None:
    """Joined again, the specs are the text that was split, and none is empty."""
    specs = split_specs(",".join(parts))
    assert ",".join(specs) == ",".join(parts)
    assert all(specs)


def test_a_wheel_path_is_a_spec(tmp_path: Path) -> None:
    """A wheel's path means that wheel, and no index is asked."""
    wheel = str(tmp_path / "torch-2.0-py3-none-any.whl")
    assert find(wheel, Build(name="pypi"), "3.11", tmp_path / "cache") == ({wheel: ""}, [])

"""Releases that exist for a build, a Python and this machine, and which of them a spec means."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wheels import Index, build_wheel, serve
from whichtorch.base.errors import UsageError
from whichtorch.environments.index import pages
from whichtorch.environments.index.releases import (
    IndexUnreachableError,
    Listing,
    Release,
    UnknownVersionError,
    check_spec,
    find,
    list_releases,
    select,
    split_specs,
    unreadable_index,
    yanked_among,
)
from whichtorch.environments.index.sources import FIRST_INDEX, Sources
from whichtorch.model import Build

PYPI = Build(name="pypi")


def listed(index: Index, python: str = "3.11", cache: Path | None = None) -> Listing:
    """Return what an index lists."""
    return list_releases(PYPI, python, cache, sources=Sources(index_url=index.url))


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wait no time between the tries of an index; note how long they would be."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


def test_lists_what_fits(tmp_path: Path) -> None:
    """Wheels of another platform or glibc are left out, and of another Python than the one asked for."""
    for tag in (
        "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64",
    ):
        build_wheel(tmp_path, "2.1.0", tag=tag)
        build_wheel(tmp_path, "2.2.0", tag=tag.replace("311", "312"))
    build_wheel(tmp_path, "2.3.0", tag="cp311-cp311-win_amd64")
    build_wheel(tmp_path, "2.4.0", tag="cp311-cp311-manylinux_2_99_x86_64.manylinux_2_99_aarch64")
    build_wheel(tmp_path, "2.5.0", tag="cp313-cp313t-manylinux_2_17_x86_64.manylinux_2_17_aarch64")
    with serve(tmp_path) as index:
        versions = {
            python: [release.version for release in listed(index, python).releases]
            for python in ("3.11", "3.12", "3.13", "3.13t")
        }
    assert versions == {"3.11": ["2.1.0"], "3.12": ["2.2.0"], "3.13": [], "3.13t": ["2.5.0"]}


def test_lists_oldest_first_by_version(tmp_path: Path) -> None:
    """Releases are sorted as versions, not as text."""
    for version in ("2.10.0", "2.9.0", "2.9.0rc1"):
        build_wheel(tmp_path, version)
    with serve(tmp_path) as index:
        assert [release.version for release in listed(index).releases] == ["2.9.0rc1", "2.9.0", "2.10.0"]


def test_yanked_are_apart(tmp_path: Path) -> None:
    """A yanked release is listed apart, with its reason."""
    build_wheel(tmp_path, "2.9.0")
    yanked = build_wheel(tmp_path, "2.9.1")
    with serve(tmp_path) as index:
        index.yanked[yanked.name] = "wrong libraries"
        listing = listed(index)
    assert [release.version for release in listing.releases] == ["2.9.0"]
    assert [(release.version, release.yanked) for release in listing.yanked] == [("2.9.1", "wrong libraries")]


def test_sizes_are_optional(tmp_path: Path) -> None:
    """Sizes are told where the index publishes them, and not missed where it does not."""
    wheel = build_wheel(tmp_path, "2.9.0")
    with serve(tmp_path) as index:
        bare = listed(index).releases[0]
        index.uploaded[wheel.name] = "2026-11-20T10:00:00Z"
        full = listed(index).releases[0]
    assert (bare.size, full.size) == (None, wheel.stat().st_size)


def test_an_index_that_recovers_is_asked_again(tmp_path: Path, pauses: list[float]) -> None:
    """An index that fails, or dies half-way, is tried three times, waiting longer each time."""
    build_wheel(tmp_path, "2.9.0")
    with serve(tmp_path) as index:
        index.failing, index.dying = 1, 1
        listing = listed(index)
    assert [release.version for release in listing.releases] == ["2.9.0"]
    assert pauses == [1.0, 2.0]


@pytest.mark.parametrize(
    ("limit", "value", "problem"),
    [("PAGE_SECONDS", 0.0, "its page is not whole after 0 s"), ("PAGE_BYTES", 10, "its page is larger than 0 MB")],
)
def test_no_page_is_read_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], limit: str, value: float, problem: str
) -> None:
    """A page that trickles, or that is too large, is given up at once and named."""
    build_wheel(tmp_path, "2.9.0")
    monkeypatch.setattr(pages, limit, value)
    with serve(tmp_path) as index, pytest.raises(IndexUnreachableError, match=problem):
        listed(index)
    assert not pauses


def test_an_index_that_does_not_recover_is_named(tmp_path: Path) -> None:
    """After three tries the error names the index, without its password."""
    with serve(tmp_path) as index:
        index.failing = 3
        url = index.url.replace("http://", "http://me:secret@")
        with pytest.raises(IndexUnreachableError, match=f"the index {index.url} cannot be read") as error:
            list_releases(PYPI, "3.11", None, sources=Sources(index_url=url))
        assert index.pages_of("torch") == 3
    assert "secret" not in str(error.value)
    assert "503" in str(error.value)


def test_nobody_there(tmp_path: Path) -> None:
    """A refused connection is told as such."""
    with serve(tmp_path) as index:
        gone = index.url
    with pytest.raises(IndexUnreachableError, match="the connection is refused"):
        list_releases(PYPI, "3.11", None, sources=Sources(index_url=gone))


def test_a_listing_is_kept_for_a_while(tmp_path: Path) -> None:
    """A rerun asks no index; ten minutes later it is asked again."""
    build_wheel(tmp_path / "wheels", "2.9.0")
    cache = tmp_path / "cache"
    with serve(tmp_path / "wheels") as index:
        first = listed(index, cache=cache)
        build_wheel(tmp_path / "wheels", "2.10.0")
        assert listed(index, cache=cache) == first
        assert index.pages_of("torch") == 1
        for file in (cache / "listings").iterdir():
            os.utime(file, (0, time.time() - 601))
        assert len(listed(index, cache=cache).releases) == 2


def test_a_broken_listing_is_not_believed(tmp_path: Path) -> None:
    """A kept listing that was cut short is made anew."""
    build_wheel(tmp_path / "wheels", "2.9.0")
    with serve(tmp_path / "wheels") as index:
        first = listed(index, cache=tmp_path / "cache")
        for file in (tmp_path / "cache" / "listings").iterdir():
            file.write_text(file.read_text()[:20])
        assert listed(index, cache=tmp_path / "cache") == first


@pytest.mark.parametrize("as_url", [False, True])
def test_a_folder_of_wheels_is_a_build(tmp_path: Path, as_url: bool) -> None:
    """A folder, by path or file: URL, is listed; there +cpu is what a plain version means."""
    wheel = build_wheel(tmp_path, "2.13.0+cpu")
    build = Build(name="mine", find_links=tmp_path.as_uri() if as_url else str(tmp_path))
    listing = list_releases(build, "3.11", None, sources=Sources(index_url="http://127.0.0.1:9"))
    assert [(release.version, release.url) for release in listing.releases] == [("2.13.0+cpu", str(wheel))]
    assert listing.releases[0].size == wheel.stat().st_size
    assert select("2.13.0", listing) == list(listing.releases)


def test_local_versions_in_the_users_links_are_aside(tmp_path: Path) -> None:
    """The index's 2.13.0 and the find-links' 2.13.0+cpu are two versions, the second only by its name."""
    build_wheel(tmp_path / "index", "2.13.0")
    build_wheel(tmp_path / "links", "2.13.0+cpu")
    build_wheel(tmp_path / "links", "2.14.0")
    with serve(tmp_path / "index") as index:
        sources = Sources(index_url=index.url, find_links=(str(tmp_path / "links"),))
        listing = list_releases(PYPI, "3.11", None, sources=sources)
    assert [release.version for release in listing.releases] == ["2.13.0", "2.14.0"]
    assert [release.version for release in listing.aside] == ["2.13.0+cpu"]


def test_an_extra_index_may_not_know_torch(tmp_path: Path) -> None:
    """A file: index without a folder for torch, and one over the network without its page, are empty."""
    build_wheel(tmp_path / "index", "2.13.0")
    (tmp_path / "extra").mkdir()
    with serve(tmp_path / "index") as index, serve(tmp_path / "extra") as empty:
        extra = ((tmp_path / "extra").as_uri(), empty.url)
        listing = list_releases(PYPI, "3.11", None, sources=Sources(index_url=index.url, extra_index_urls=extra))
    assert [release.version for release in listing.releases] == ["2.13.0"]


def test_an_index_in_a_folder(tmp_path: Path) -> None:
    """A file: index is read from its pages, whose links may be relative."""
    wheel = build_wheel(tmp_path / "files", "2.13.0+cpu")
    page = tmp_path / "simple" / "torch" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../files/{wheel.name.replace("+", "%2B")}#sha256=00">a wheel</a>')
    build = Build(name="mine", index_url=(tmp_path / "simple").as_uri())
    listing = list_releases(build, "3.11", None, sources=Sources())
    assert [release.url for release in listing.releases] == [str(wheel)]


def test_uvs_habit_is_the_first_index(tmp_path: Path) -> None:
    """Where uv's settings name the indexes, the first one that knows torch hides the others."""
    build_wheel(tmp_path / "a", "2.12.0")
    build_wheel(tmp_path / "b", "2.13.0")
    with serve(tmp_path / "a") as first, serve(tmp_path / "b") as second:
        sources = Sources(index_url=second.url, extra_index_urls=(first.url,), strategy=FIRST_INDEX)
        listing = list_releases(PYPI, "3.11", None, sources=sources)
    assert [release.version for release in listing.releases] == ["2.12.0"]


def test_the_index_that_is_in_the_way_is_named(tmp_path: Path) -> None:
    """Of all that a build installs from, the first that cannot be read is told; a folder is never asked."""
    build_wheel(tmp_path / "own", "2.13.0+cpu")
    with serve(tmp_path / "own") as own, serve(tmp_path / "empty") as general:
        build = Build(name="cpu", index_url=own.url)
        sources = Sources(index_url=general.url, find_links=(str(tmp_path / "nowhere"),))
        assert unreadable_index(build, sources) is None
        general.failing = 1
        assert unreadable_index(build, sources) == f"the index {general.url} cannot be read: it answers 503"
        own.dying = 1
        problem = unreadable_index(build, sources)
    assert problem == f"the index {own.url} cannot be read: the answer ends half-way"
    gone = unreadable_index(build, sources)
    assert gone == f"the index {own.url} cannot be read: the connection is refused"


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

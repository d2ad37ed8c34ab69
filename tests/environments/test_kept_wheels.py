"""Wheels of nightlies are kept: what their index drops can be installed again."""

import hashlib
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.shell import wait_for
from tests.environments.conftest import PYTHON, MakeCache, ask
from tests.wheels import Index, build_companion, build_wheel
from whichtorch.base.atomic_files import remove_tree
from whichtorch.environments.index.releases import kept_folder, list_releases
from whichtorch.environments.resolution import kept_wheel
from whichtorch.model import Build, Outcome

OLD, NEW = "2.16.0.dev20260901+cpu", "2.16.0.dev20260902+cpu"


@pytest.fixture
def nightly(wheels: Path, index: Index) -> Build:
    """Return a build of two nightlies, from an index over the network."""
    build_wheel(wheels, OLD)
    build_wheel(wheels, NEW)
    return Build(name="nightly-cpu", index_url=index.url, nightly=True)


def kept_in(tmp_path: Path) -> list[str]:
    """Return the names of what is kept, whole or not."""
    return sorted(path.name for path in (tmp_path / "home" / "wheels").glob("*/*"))


def evict(tmp_path: Path) -> None:
    """Remove what is installed, and all that uv has of it."""
    for complete in (tmp_path / "home" / "envs").glob("*/complete"):
        complete.unlink()
        remove_tree(complete.with_name("venv"))
    shutil.rmtree(tmp_path / "home" / "cache" / "uv")


def vanish(wheels: Path, version: str) -> None:
    """Drop a nightly from the index."""
    (wheel,) = wheels.glob(f"torch-{version}-*.whl")
    wheel.unlink()


@pytest.mark.thorough
def test_a_vanished_nightly_installs_again(wheels: Path, nightly: Build, tmp_path: Path, make_cache: MakeCache) -> None:
    """Dropped from its index and evicted, a nightly that was used once is made again, the same as before."""
    cache = make_cache()
    first = cache.acquire(ask(OLD, build=nightly))
    cache.release(ask(OLD, build=nightly))
    assert cache.stages == ["resolving", "downloading", "installing", "probing", "ready"]
    assert kept_in(tmp_path) == [f"torch-{OLD}-py3-none-any.whl"]
    vanish(wheels, OLD)
    evict(tmp_path)
    again = make_cache()
    assert again.acquire(ask(OLD, build=nightly)) == first
    assert again.stages == ["installing", "ready"]


@pytest.mark.thorough
def test_a_kept_wheel_is_found_by_a_new_request(wheels: Path, nightly: Build, make_cache: MakeCache) -> None:
    """Asked for together with something else, a vanished nightly is resolved anew, and found where it is kept."""
    make_cache().acquire(ask(OLD, build=nightly))
    vanish(wheels, OLD)
    environment = make_cache().acquire(ask(OLD, build=nightly, requirements=("setuptools",)))
    assert environment.packages == {"numpy": "2.2.0", "setuptools": "75.0.0", "torch": OLD}


@pytest.mark.thorough
def test_a_kept_nightly_stays_in_the_listing(
    wheels: Path, index: Index, nightly: Build, tmp_path: Path, make_cache: MakeCache
) -> None:
    """What is kept counts as available, in its order, for its build alone; what the index has comes from there."""
    build_wheel(wheels, "2.16.0.dev20260831+cpu")
    for version in (OLD, NEW):
        make_cache().acquire(ask(version, build=nightly))
    vanish(wheels, OLD)
    folder = kept_folder(tmp_path / "home", nightly)
    listing = list_releases(nightly, PYTHON, tmp_path / "home" / "cache")
    assert [(release.version, release.source) for release in listing.releases] == [
        ("2.16.0.dev20260831+cpu", index.url),
        (OLD, str(folder)),
        (NEW, index.url),
    ]
    assert list_releases(nightly, PYTHON, tmp_path / "home" / "cache") == listing  # kept for ten minutes
    other = Build(name="other", index_url=index.url, nightly=True)
    assert [release.version for release in list_releases(other, PYTHON, tmp_path / "home" / "cache").releases] == [
        "2.16.0.dev20260831+cpu",
        NEW,
    ]


@pytest.mark.thorough
def test_what_comes_with_a_nightly_is_kept(wheels: Path, index: Index, tmp_path: Path, make_cache: MakeCache) -> None:
    """Packages that were built with a nightly are kept with it; a release such as numpy's, which stays, is not."""
    build_companion(wheels, "triton", "3.6.0+git1234567")
    build_companion(wheels, "torchvision", "0.27.0.dev20260901+cpu")
    build_wheel(wheels, OLD, requires=("triton==3.6.0+git1234567", "torchvision==0.27.0.dev20260901+cpu"))
    nightly = Build(name="nightly-cpu", index_url=index.url, nightly=True)
    environment = make_cache().acquire(ask(OLD, build=nightly))
    assert environment.is_usable, environment.reason
    assert kept_in(tmp_path) == [
        f"torch-{OLD}-py3-none-any.whl",
        "torchvision-0.27.0.dev20260901+cpu-py3-none-any.whl",
        "triton-3.6.0+git1234567-py3-none-any.whl",
    ]


@pytest.mark.parametrize(
    "build",
    [
        Build(name="cpu", index_url="http://index/cpu"),
        Build(name="nightly-mine", index_url="file:///srv/simple", nightly=True),
        Build(name="mine", find_links="/srv/wheels", nightly=True),
    ],
)
def test_what_does_not_vanish_is_not_kept(tmp_path: Path, build: Build) -> None:
    """Releases stay in their index, and a folder is the user's own to keep."""
    assert kept_folder(tmp_path, build) is None


@pytest.mark.thorough
def test_a_digest_is_verified(
    wheels: Path, index: Index, nightly: Build, tmp_path: Path, make_cache: MakeCache
) -> None:
    """What is not what the index promised is never kept; what is, is."""
    name = f"torch-{OLD}-py3-none-any.whl"
    index.digests[name] = "0" * 64
    environment = make_cache().acquire(ask(OLD, build=nightly))
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason == f"downloading failed: torch {OLD}: its digest is not the one that the index names"
    assert kept_in(tmp_path) == []
    index.digests[name] = hashlib.sha256((wheels / name).read_bytes()).hexdigest()
    shutil.rmtree(tmp_path / "home" / "cache")  # uv believes the page that it has
    environment = make_cache().acquire(ask(OLD, build=nightly))
    assert environment.is_usable, environment.reason
    assert kept_in(tmp_path) == [name]


@pytest.mark.thorough
def test_a_download_that_ends_half_way_is_tried_again(
    index: Index, nightly: Build, tmp_path: Path, make_cache: MakeCache
) -> None:
    """An answer that breaks off is no wheel: it is fetched again, and only a whole one has the name of one."""

    def die() -> None:
        index.dying, index.at = 1, ".whl"

    environment = make_cache(watch=_once("downloading", die)).acquire(ask(OLD, build=nightly))
    assert environment.is_usable, environment.reason
    assert index.dying == 0
    assert kept_in(tmp_path) == [f"torch-{OLD}-py3-none-any.whl"]


@pytest.mark.thorough
def test_an_interrupt_ends_a_download(index: Index, nightly: Build, tmp_path: Path, make_cache: MakeCache) -> None:
    """An interrupt ends a download at once; nothing is taken for a wheel, and the next try leaves nothing over."""

    def hold() -> None:
        index.held, index.at = threading.Event(), ".whl"
        index.paths.clear()

    cancelled = threading.Event()
    cache = make_cache(watch=_once("downloading", hold))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.acquire, ask(OLD, build=nightly), cancelled)
        # before the download uv asks for wheels, too: for their metadata
        wait_for(lambda: index.held is not None and any(path.endswith(".whl") for path in index.paths))
        cancelled.set()
        environment = waiting.result()
    assert index.held is not None
    index.held.set()
    assert environment.reason == "interrupted"
    assert not [name for name in kept_in(tmp_path) if name.startswith("torch")]
    index.held = None
    assert cache.acquire(ask(OLD, build=nightly)).is_usable
    assert kept_in(tmp_path) == [f"torch-{OLD}-py3-none-any.whl"]


def test_a_download_that_hangs_is_killed(index: Index, nightly: Build, make_cache: MakeCache) -> None:
    """A wheel that never comes makes its version unbuildable, not a run that hangs."""

    def hold() -> None:
        index.held, index.at = threading.Event(), ".whl"

    cache = make_cache(watch=_once("downloading", hold), install_timeout=5)
    environment = cache.acquire(ask(OLD, build=nightly))
    assert index.held is not None
    index.held.set()
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason == "downloading took longer than 5 s"


def test_the_kept_wheel_that_fits_best(tmp_path: Path) -> None:
    """Of several wheels of a version the one for this Python is taken, and one for another Python never."""
    minor = PYTHON.partition(".")[2]
    plain = build_wheel(tmp_path, OLD)
    build_wheel(tmp_path, OLD, tag="cp399-cp399-win_amd64")
    assert kept_wheel(tmp_path, "torch", OLD, PYTHON) == plain
    best = build_wheel(tmp_path, OLD, tag=f"cp3{minor}-none-any")
    assert kept_wheel(tmp_path, "torch", OLD, PYTHON) == best
    assert kept_wheel(tmp_path, "torch", NEW, PYTHON) is None


def _once(stage: str, action: Callable[[], None]) -> Callable[[str], None]:
    """Return a listener that acts when a stage begins for the first time."""
    begun: set[str] = set()

    def listen(name: str) -> None:
        if name == stage and stage not in begun:
            action()
        begun.add(name)

    return listen

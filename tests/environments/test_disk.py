"""A matrix larger than the disk: eviction, waiting, and identities that stay."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.environments.conftest import MakeCache, ask
from tests.patience import PATIENCE
from tests.wheels import Index, build_companion, build_wheel, serve
from whichtorch.environments.commander import CancelledError
from whichtorch.environments.disk import Disk, NoRoomError
from whichtorch.environments.index.sources import Sources
from whichtorch.environments.installation import contents
from whichtorch.model import Build, Outcome

SIZE = 2_000_000  # bytes of a padded stand-in: two fit a budget of 5 MB, three do not
VERSIONS = ("2.11.0", "2.12.0", "2.13.0", "2.14.0")


@pytest.fixture
def padded(wheels: Path) -> Path:
    """Return a folder with four releases of a size that counts."""
    for version in VERSIONS:
        build_wheel(wheels, version, padding=SIZE)
    return wheels


def bytes_below(folder: Path) -> int:
    """Return what files below a folder take, once each, without what is being freed."""
    sizes = {}  # by inode
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".trash"]
        for name in names:
            status = Path(parent, name).lstat()
            sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def installed(tmp_path: Path) -> set[str]:
    """Return the versions whose environments are there."""
    folders = [marker.parent for marker in (tmp_path / "home" / "envs").glob("*/complete")]
    texts = [json.loads((folder / "installation.json").read_text()) for folder in folders]
    return {package["version"] for text in texts for package in text["packages"] if package["name"] == "torch"}


@pytest.mark.thorough
def test_evicts_in_waves(padded: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """More environments than fit are installed one after the other, the least recently used going first."""
    cache = make_cache(disk_budget_mb=5, unknown_size_mb=2.1)
    for version in VERSIONS:
        assert cache.acquire(ask(version)).is_usable
        cache.release(ask(version))
        assert bytes_below(tmp_path / "home") < 5_000_000
    assert installed(tmp_path) == {"2.13.0", "2.14.0"}
    assert cache.stages.count("evicting") == 2


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_least_recently_used_goes_first(padded: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """An environment used again stays, one not used since goes."""
    cache = make_cache(disk_budget_mb=5, unknown_size_mb=2.1)
    for version in ("2.11.0", "2.12.0", "2.11.0", "2.13.0"):
        cache.acquire(ask(version))
        cache.release(ask(version))
    assert installed(tmp_path) == {"2.11.0", "2.13.0"}


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_identity_survives_eviction(padded: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """An evicted environment is still known, and made again from its lock it is the same, whatever is new."""
    cache = make_cache(disk_budget_mb=3, unknown_size_mb=2.1)
    first = cache.acquire(ask("2.11.0"))
    cache.release(ask("2.11.0"))
    cache.acquire(ask("2.12.0"))
    cache.release(ask("2.12.0"))
    assert not cache.is_installed(ask("2.11.0"))
    assert cache.known(ask("2.11.0")) == first
    build_companion(padded, "numpy", "2.3.0")
    with serve(padded) as index:
        again = make_cache(sources=Sources(index_url=index.url), disk_budget_mb=3, unknown_size_mb=2.1)
        assert again.acquire(ask("2.11.0")) == first
    assert again.stages == ["evicting", "installing", "ready"]


@pytest.mark.thorough
def test_what_is_shared_stays(padded: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """Eviction frees a package's copy in uv's cache once no environment has it, and not before."""
    build_companion(padded, "numpy", "3.0.0", padding=SIZE)
    cache = make_cache(disk_budget_mb=7, unknown_size_mb=4.2)
    for version in ("2.11.0", "2.12.0", "2.13.0"):  # numpy once, and two of the three
        cache.acquire(ask(version))
        cache.release(ask(version))
    archives = (tmp_path / "home" / "cache" / "uv").glob("archive-v*/*/*.dist-info")
    assert {archive.name for archive in archives} == {
        "numpy-3.0.0.dist-info",
        "torch-2.12.0.dist-info",
        "torch-2.13.0.dist-info",
    }


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_never_evicts_what_is_in_use(padded: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """An install waits while everything is in use, and goes on when something is released."""
    waits = threading.Event()
    cache = make_cache(disk_budget_mb=3, unknown_size_mb=2.1)
    cache.watch = lambda stage: waits.set() if stage == "waiting for disk" else None
    held = cache.acquire(ask("2.11.0"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.acquire, ask("2.12.0"))
        assert waits.wait(PATIENCE)
        assert held.interpreter is not None
        assert held.interpreter.exists()
        cache.release(ask("2.11.0"))
        assert waiting.result().is_usable
    assert installed(tmp_path) == {"2.12.0"}


@pytest.mark.usefixtures("stand_in_uv")
def test_two_users_of_one_environment(padded: Path, make_cache: MakeCache) -> None:
    """An environment acquired twice is in use until it is released twice."""
    waits = threading.Event()
    cache = make_cache(disk_budget_mb=3, unknown_size_mb=2.1)
    for _ in range(2):
        cache.acquire(ask("2.11.0"))
    cache.release(ask("2.11.0"))
    cache.watch = lambda stage: waits.set() if stage == "waiting for disk" else None
    cancelled = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.acquire, ask("2.12.0"), cancelled)
        assert waits.wait(PATIENCE)
        cancelled.set()
        assert waiting.result().reason == "interrupted"
    assert cache.is_installed(ask("2.11.0"))


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_marks_of_a_dead_tool_do_not_count(padded: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """What a killed run was using can be evicted by the next."""
    code = (
        "import os, sys; from pathlib import Path; from whichtorch.environments.disk import Disk\n"
        "Disk(Path(sys.argv[1])).mark(sys.argv[2], 10**12)\n"
        "os._exit(1)"
    )
    cache = make_cache(disk_budget_mb=3, unknown_size_mb=2.1)
    cache.acquire(ask("2.11.0"))
    cache.release(ask("2.11.0"))
    argv = [sys.executable, "-c", code, str(tmp_path / "home"), ask("2.11.0").install_key]
    assert subprocess.run(argv, check=False).returncode == 1
    assert cache.acquire(ask("2.12.0")).is_usable
    assert installed(tmp_path) == {"2.12.0"}


@pytest.mark.usefixtures("stand_in_uv")
def test_no_disk(padded: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """What does not fit though nothing is in use is unbuildable, with the figures, and evicts nothing."""
    cache = make_cache(disk_budget_mb=3, unknown_size_mb=2.1)
    cache.acquire(ask("2.11.0"))
    cache.release(ask("2.11.0"))
    build_wheel(padded, "2.19.0", padding=2 * SIZE)
    (tmp_path / "local").mkdir()
    wheel = shutil.copy(padded / "torch-2.19.0-py3-none-any.whl", tmp_path / "local")
    environment = cache.acquire(ask(str(wheel)))
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason is not None
    assert environment.reason.startswith("no disk: about 12.4 MB needed, the budget is 3.0 MB")
    assert installed(tmp_path) == {"2.11.0"}


def test_kept_wheels_count(tmp_path: Path) -> None:
    """Wheels that are kept take of the budget, and the reason that nothing fits says what they take and who may go."""
    disk = Disk(tmp_path, budget_mb=250)
    disk.folder.mkdir()
    wheel = tmp_path / "wheels" / "nightly" / "torch-2.16.0.dev20261101-cp311-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with wheel.open("wb") as file:
        file.truncate(200_000_000)
    assert (disk.kept_wheels(), disk.usage().wheels) == ([wheel], 200_000_000)
    with pytest.raises(NoRoomError, match=r"0\.2 GB are wheels of nightlies: `whichtorch runs prune --wheels DAYS`"):
        disk.reserve("key", 100_000_000, None, lambda _stage: None)
    wheel.unlink()
    disk.reserve("key", 100_000_000, None, lambda _stage: None)


def test_default_budget_is_a_share_of_what_is_free(tmp_path: Path) -> None:
    """Without a budget four fifths of what is free or ours may be taken."""
    disk = Disk(tmp_path, None, 1)
    disk.folder.mkdir()
    usage = disk.usage()
    assert usage.used == 0
    assert usage.budget == pytest.approx(0.8 * usage.free, rel=0.01)


def test_reserved_bytes_are_taken(tmp_path: Path) -> None:
    """What an install in progress will take is not given to another."""
    disk = Disk(tmp_path, 10, 1)
    disk.folder.mkdir()
    disk.reserve("aa", 6_000_000, None, print)
    cancelled = threading.Event()
    stages = []

    def stage(name: str) -> None:
        stages.append(name)
        cancelled.set()

    with pytest.raises(CancelledError):
        disk.reserve("bb", 6_000_000, cancelled, stage)
    assert stages == ["waiting for disk"]
    disk.unmark("aa")
    disk.reserve("bb", 6_000_000, None, print)
    assert disk.marks() == {"bb": 6_000_000}


def test_more_than_the_budget_is_refused_at_once(tmp_path: Path) -> None:
    """What can never fit does not wait for others to finish."""
    disk = Disk(tmp_path, 10, 1)
    disk.folder.mkdir()
    disk.reserve("aa", 1, None, print)
    with pytest.raises(NoRoomError):
        disk.reserve("bb", 10_000_001, None, print)


@pytest.mark.usefixtures("stand_in_uv")
def test_estimate_counts_what_is_new(padded: Path, index: Index, tmp_path: Path, make_cache: MakeCache) -> None:
    """Packages that another environment has cost nothing; an unknown torch costs what the last one did."""
    make_cache().acquire(ask("2.11.0"))
    disk = Disk(tmp_path / "home", None, 5000)
    assert disk.estimate("torch==2.11.0\nnumpy==2.2.0\n", "pypi", None) == 0
    assert disk.estimate("torch==2.12.0\nnumpy==2.2.0\n", "pypi", None) == pytest.approx(2.06e6, rel=0.02)
    assert disk.estimate("torch==2.12.0+cpu\n", "cpu", None) == 5000 * 10**6
    assert disk.estimate("torch==2.12.0+cpu\n", "cpu", 1000) == 3090


@pytest.mark.thorough
@pytest.mark.parametrize("removed_by", ["eviction", "somebody else"])
def test_a_wheel_from_a_folder_is_unpacked_again(
    padded: Path, tmp_path: Path, make_cache: MakeCache, removed_by: str
) -> None:
    """What was freed in uv's cache is fetched again, from folders too, where uv does not notice."""
    build = Build(name="mine", find_links=str(padded))
    cache = make_cache(disk_budget_mb=7)  # a local wheel counts three times: it may be compressed
    first = cache.acquire(ask("2.11.0", build=build))
    cache.release(ask("2.11.0", build=build))
    other = cache.acquire(ask("2.12.0", build=build))
    assert other.is_usable, other.reason
    cache.release(ask("2.12.0", build=build))
    if removed_by == "somebody else":
        shutil.rmtree(next((tmp_path / "home" / "cache" / "uv").glob("archive-v*")))
    assert cache.acquire(ask("2.11.0", build=build)) == first


def test_a_failed_install_leaves_nothing_in_uvs_cache(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """What uv had unpacked for an install that then failed is freed."""
    build_wheel(wheels, "2.13.0", claims="2.11.1")
    environment = make_cache().acquire(ask("2.13.0"))
    assert environment.outcome is Outcome.UNBUILDABLE
    assert not list((tmp_path / "home" / "cache" / "uv").glob("archive-v*/*"))
    assert not list((tmp_path / "home" / "envs").glob("*/venv"))


HOLD = """
import sys, time
from pathlib import Path
from whichtorch.environments.disk import Disk
with Disk(Path(sys.argv[1])).locked("torch"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_held_by_one_thread_at_a_time(tmp_path: Path) -> None:
    """Threads that want the same lock, of the same state folder or of the same object, take turns."""
    disks = [Disk(tmp_path), Disk(tmp_path)]
    holders = 0
    most = []

    def hold(number: int) -> None:
        nonlocal holders
        with disks[number % 2].locked("torch"):
            holders += 1
            time.sleep(0.01)
            most.append(holders)
            holders -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(hold, range(12)))
    assert most == [1] * 12


def test_a_lock_is_dropped_with_its_process(tmp_path: Path) -> None:
    """While another process holds a lock an interrupt ends the waiting; once that process is killed it is free."""
    cancelled = threading.Event()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: Disk(tmp_path).locked("torch", cancelled).__enter__())
            cancelled.set()
            assert isinstance(waiting.exception(10), CancelledError)
        holder.kill()
    with Disk(tmp_path).locked("torch"):
        pass


def test_a_record_with_odd_rows_is_counted_as_far_as_it_goes() -> None:
    """Rows without a digest or a size, empty ones and those that the installer wrote break nothing."""
    record = "a.py,sha256=x,12\nb.py\n\nc.py,,\nd.py,,unknown\ne.py,sha256=y,3,more\n../bin/f,,7\n"
    sizes = [("a.py", "sha256=x", 12), ("b.py", "", 0), ("c.py", "", 0), ("d.py", "", 0), ("e.py", "sha256=y", 3)]
    assert list(contents(record)) == sizes

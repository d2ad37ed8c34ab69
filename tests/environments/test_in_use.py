"""An environment that somebody uses stays as it is, whoever else needs it, and for whatever reason."""

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.environments.conftest import MakeCache, WatchedCache, ask
from tests.environments.test_cache import folder_of
from tests.patience import PATIENCE
from tests.wheels import behaviour_patch, build_wheel
from whichtorch.environments import canary, installation
from whichtorch.environments.commander import Commander, InstallError
from whichtorch.environments.disk import Disk, is_held
from whichtorch.environments.installation import PackageWatch
from whichtorch.model import Config, Environment, Patch, Request

pytestmark = pytest.mark.usefixtures("stand_in_uv")

FIX = Patch(name="fix", text=behaviour_patch("old", "new"), option="fix.diff")
PLAIN = ask("2.11.0")
WAITS = "waiting for another run that uses it"


@pytest.fixture
def home(tmp_path: Path, wheels: Path) -> Path:
    """Return the state folder, for which the index has two releases."""
    for version in ("2.11.0", "2.12.0"):
        build_wheel(wheels, version, behaviour="old", padding=2_000_000)
    return tmp_path / "home"


def state_of(home: Path, request: Request) -> dict[str, tuple[int, int]]:
    """Return which files an environment has, and when each has changed, but for bytecode."""
    folder = folder_of(home, request) / "venv"
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


@contextmanager
def waiting_for(stage: str, cache: WatchedCache, request: Request) -> Iterator[list[Environment]]:
    """Let a cache acquire an environment; enter the block when it waits, and after that have its environment."""
    waits, made = threading.Event(), list[Environment]()
    cache.watch = lambda name: waits.set() if name == stage else None
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cache.acquire, request)
        assert waits.wait(PATIENCE), cache.stages
        yield made
        made.append(asked.result())


def forget_marks(home: Path) -> None:
    """Do what a tool on another machine does, for which the processes of this one are dead."""
    shutil.rmtree(home / "envs" / ".marks")


@pytest.mark.parametrize("spelling", ["link", "home/../home", "link to link"])
def test_another_spelling(home: Path, tmp_path: Path, make_cache: MakeCache, spelling: str) -> None:
    """An environment is whole, and the same, whatever path leads to its folder."""
    user = make_cache()
    user.acquire(PLAIN)
    before = state_of(home, PLAIN)
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "link to link").symlink_to("link")
    other = make_cache(home=tmp_path / spelling)
    assert other.acquire(PLAIN).is_usable
    assert (other.stages, state_of(home, PLAIN)) == (["ready"], before)


@pytest.mark.parametrize("spelled", ["home", "link"])
@pytest.mark.parametrize("by", ["damage", "interpreter", "half-made", "another place"])
def test_repair_waits(home: Path, tmp_path: Path, make_cache: MakeCache, by: str, spelled: str) -> None:
    """What has to be made again is made again when nobody uses it any more, also for who knows no marks."""
    (tmp_path / "link").symlink_to(home)
    user, other = make_cache(), make_cache(home=tmp_path / spelled)
    user.acquire(PLAIN)
    folder = folder_of(home, PLAIN)
    if by == "damage":
        next(folder.glob("venv/lib/python*/site-packages/torch/version.py")).unlink()
    elif by == "interpreter":
        (folder / "venv" / "bin" / "python").unlink()
    elif by == "half-made":  # by an earlier version, as it removed it
        (folder / "complete").unlink()
    else:  # copied from there
        text = (folder / "installation.json").read_text()
        (folder / "installation.json").write_text(text.replace(str(folder), str(tmp_path / "elsewhere")))
    before = state_of(home, PLAIN)
    forget_marks(home)
    with waiting_for(WAITS, other, PLAIN) as made:
        assert state_of(home, PLAIN) == before
        user.release(PLAIN)
    assert made[0].is_usable, made[0].reason
    assert other.stages == [WAITS, "installing", "ready"]


def test_a_wheel_that_was_built_again_waits(home: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """The environment of the earlier wheel is not touched while somebody uses it."""
    request = ask(str(build_wheel(tmp_path / "own", "2.11.0")))
    user, other = make_cache(), make_cache()
    first = user.acquire(request)
    build_wheel(tmp_path / "own", "2.11.0", padding=10)
    before = state_of(home, request)
    with waiting_for(WAITS, other, request) as made:
        assert state_of(home, request) == before
        user.release(request)
    assert made[0].is_usable, made[0].reason
    assert made[0].id != first.id


@pytest.mark.parametrize("user_of", ["release", "patch", "interpreter"])
def test_eviction(home: Path, tmp_path: Path, make_cache: MakeCache, user_of: str) -> None:
    """What is in use, as it is, below a patch or by its path, is evicted by nobody, on whatever machine."""
    (tmp_path / "link").symlink_to(home)
    first = make_cache().acquire(PLAIN)
    plain = ask("2.11.0", patch=FIX) if user_of == "patch" else PLAIN
    if user_of == "interpreter":
        plain = Request(torch="", python="", build=PLAIN.build, config=PLAIN.config, interpreter=first.interpreter)
    user, other = make_cache(), make_cache(home=tmp_path / "link", disk_budget_mb=3, unknown_size_mb=2.1)
    assert user.acquire(plain).is_usable
    forget_marks(home)
    before = state_of(home, PLAIN)
    cancelled = threading.Event()
    other.watch = lambda name: cancelled.set() if name == "waiting for disk" else None
    assert other.acquire(ask("2.12.0"), cancelled).reason == "interrupted"
    assert state_of(home, PLAIN) == before


@pytest.mark.parametrize("way", ["probe", "config", "patch"])
def test_others_beside_it(home: Path, make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Another version's probe, another config and a patch leave the files of an environment in use as they are."""
    user, other = make_cache(), make_cache()
    user.acquire(PLAIN)
    before = state_of(home, PLAIN)
    monkeypatch.setattr(canary, "PROBE_DIGEST", "of another version" if way == "probe" else installation.PROBE_DIGEST)
    config = Config(name="single", env={"OMP_NUM_THREADS": "1"}) if way == "config" else PLAIN.config
    request = ask("2.11.0", config=config, patch=FIX if way == "patch" else None)
    assert other.acquire(request).is_usable
    assert other.stages == [*(["patching"] if way == "patch" else []), "probing", "ready"]
    assert state_of(home, PLAIN) == before


def test_who_waits_too_long_is_told(home: Path, make_cache: MakeCache) -> None:
    """Nobody waits longer for an environment than an install may take."""
    user = make_cache()
    user.acquire(PLAIN)
    with pytest.raises(InstallError, match="another run still uses it"):
        Disk(home).clear(PLAIN.install_key, Commander(home=home, logs=home, timeout=0))
    user.release(PLAIN)
    Disk(home).clear(PLAIN.install_key, Commander(home=home, logs=home, timeout=0))
    assert not (folder_of(home, PLAIN) / "venv").exists()


def test_a_lock_is_on_what_a_folder_is(tmp_path: Path) -> None:
    """Who uses an environment uses it by all its names, together with others, until the last of them ends."""
    (tmp_path / "envs" / "key").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path)
    disks = [Disk(tmp_path), Disk(tmp_path / "link"), Disk(tmp_path)]
    for disk in disks:
        disk.mark("key")
    for disk in disks:
        forget_marks(tmp_path)
        assert [each.in_use() for each in disks] == [{"key"}] * 3
        disk.mark("key")
        disk.unmark("key")
    assert [each.in_use() for each in disks] == [set()] * 3
    assert not is_held(tmp_path / "envs" / "key" / "used")
    assert not is_held(tmp_path / "envs" / "absent" / "used")


CHANGES = {
    "written": "torch/ops.py",
    "written, with its size": "torch/ops.py",
    "removed": "torch/ops.py",
    "its folder removed": "torch/nn/modules.py",
    "replaced": "torch/ops.py",
    "installed anew": "torch-2.dist-info/RECORD",
    "environment removed": "torch-2.dist-info/RECORD",
    "environment removed and made again": "torch-2.dist-info/RECORD",
    "bytecode": "",
    "a new file": "",
    "a new package": "",
    "linked by another environment": "",
    "another file was never as RECORD says": "",
    "bytecode beside one that was never there": "",
}


def make_environment(venv: Path, seconds: float) -> Path:
    """Make the files of an environment as an install has left them; return where its packages are."""
    site = venv / "lib" / "python3.11" / "site-packages"
    for name, text in {"torch/ops.py": "whole", "torch/nn/modules.py": "whole", "torch/odd.py": "odd"}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / "torch-2.dist-info").mkdir()
    rows = "torch/ops.py,,5\ntorch/nn/modules.py,,5\ntorch/odd.py,,99\ntorch/never/there.py,,1\n"
    (site / "torch-2.dist-info" / "RECORD").write_text(rows)
    for path in site.rglob("*"):
        os.utime(path, (seconds, seconds))
    return site


@pytest.mark.parametrize("change", CHANGES)
def test_changed_files(tmp_path: Path, change: str) -> None:
    """Files that a wheel brought and that changed or went are seen; what torch writes beside them does not count."""
    site = make_environment(tmp_path / "venv", 1e9)
    watch = PackageWatch.of(tmp_path / "venv" / "bin" / "python", 10**18 + 1)
    file = site / "torch" / "ops.py"
    if change.startswith("written"):
        file.write_text("other" if "size" in change else "longer than it was")
    elif change == "removed":
        file.unlink()
    elif change == "its folder removed":
        shutil.rmtree(site / "torch" / "nn")
    elif change == "replaced":
        (tmp_path / "other").write_text("of another version")
        os.utime(tmp_path / "other", (1e9, 1e9))
        (tmp_path / "other").replace(file)
    elif change == "installed anew":
        (site / "torch-2.dist-info" / "RECORD").write_text("torch/ops.py,,5\n")
    elif change.startswith("environment removed"):
        (tmp_path / "venv").rename(tmp_path / "trash")
        if "again" in change:
            make_environment(tmp_path / "venv", 1.1e9)
    elif change.startswith("bytecode"):
        (site / "torch" / "__pycache__").mkdir()
        (site / "torch" / "__pycache__" / "ops.cpython-311.pyc").write_text("")
    elif change == "a new file":
        (site / "torch" / "cache.json").write_text("{}")
    elif change == "a new package":
        (site / "mine-1.dist-info").mkdir()
        (site / "mine-1.dist-info" / "RECORD").write_text("mine.py,,1\n")
    elif change == "linked by another environment":
        os.link(file, tmp_path / "link")
    is_seen_in_pass = CHANGES[change].endswith("RECORD")
    assert watch.changed(closely=False).endswith(CHANGES[change] if is_seen_in_pass else "")
    assert bool(watch.changed(closely=False)) is is_seen_in_pass
    assert bool(watch.changed(closely=True)) is bool(CHANGES[change])
    assert watch.changed(closely=True).endswith(CHANGES[change])

"""Environments with a patch: overlays of stand-in installations, made, reused and evicted like any environment."""

import hashlib
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.environments.conftest import MakeCache, ask
from tests.environments.test_cache import folder_of
from tests.wheels import behaviour_patch, build_wheel
from whichtorch.environments import cache as cache_module
from whichtorch.environments.commander import Commander
from whichtorch.environments.disk import Disk
from whichtorch.environments.overlay import site_packages
from whichtorch.model import Outcome, Patch, Request

FIX = Patch(name="fix", text=behaviour_patch("old", "new"), option="fix.diff")
PLAIN, FIXED = ask("2.11.0"), ask("2.11.0", patch=FIX)


def behaviour_in(home: Path, request: Request) -> str:
    """Return the line of torch that the patch changes."""
    text = (site_packages(folder_of(home, request) / "venv") / "torch" / "__init__.py").read_text()
    return next(line for line in text.splitlines() if line.startswith("behaviour"))


def hashes(folder: Path) -> dict[str, str]:
    """Return what all files below a folder hold."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def old(wheels: Path) -> Path:
    """Return the folder of wheels, with an old torch in it."""
    return build_wheel(wheels, "2.11.0", behaviour="old").parent


def test_a_patch_is_an_environment(old: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """The patched release is another environment; the installation that it is made of keeps all its bytes."""
    home, cache = tmp_path / "home", make_cache()
    plain = cache.acquire(PLAIN)
    before = hashes(folder_of(home, PLAIN) / "venv")
    cache.stages.clear()
    fixed = cache.acquire(FIXED)
    assert fixed.is_usable, fixed.reason
    assert cache.stages == ["patching", "probing", "ready"]
    assert (plain.label, fixed.label) == ("torch-2.11.0-pypi", "torch-2.11.0-pypi+fix")
    assert (plain.axes["patch"], fixed.axes["patch"]) == ("none", f"fix@{FIX.key[:6]}")
    assert fixed.options == ("--torch", "2.11.0", "--build", "pypi", "--patch", "fix.diff")
    assert fixed.notes == ("patch fix changes a file",)
    assert plain.id != fixed.id
    assert fixed.interpreter == folder_of(home, FIXED) / "venv" / "bin" / "python"
    assert behaviour_in(home, PLAIN) == "behaviour = 'old'"
    assert behaviour_in(home, FIXED) == "behaviour = 'new'"
    assert hashes(folder_of(home, PLAIN) / "venv") == before


@pytest.mark.usefixtures("stand_in_uv")
def test_the_text_makes_the_identity(old: Path, make_cache: MakeCache) -> None:
    """A patch of another name and file is the same environment; an edited one is another."""
    cache = make_cache()
    first = cache.acquire(FIXED)
    renamed = cache.known(ask("2.11.0", patch=FIX.model_copy(update={"name": "other", "option": "other.diff"})))
    assert renamed is not None
    assert (renamed.id, renamed.label) == (first.id, "torch-2.11.0-pypi+other")
    edited = ask("2.11.0", patch=FIX.model_copy(update={"text": f"A better one.\n{FIX.text}"}))
    assert cache.known(edited) is None
    assert cache.acquire(edited).id != first.id


@pytest.mark.usefixtures("stand_in_uv")
def test_a_patched_environment_is_known_and_reused(old: Path, make_cache: MakeCache) -> None:
    """Another run knows it, installs nothing, and patches nothing."""
    first = make_cache().acquire(FIXED)
    cache = make_cache()
    assert cache.known(FIXED) == first
    assert cache.acquire(FIXED) == first
    assert cache.stages == ["ready"]


@pytest.mark.usefixtures("stand_in_uv")
def test_what_it_is_made_of_is_installed_first(old: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """A patched release needs no earlier run of the plain one, and no install where that is there."""
    cache = make_cache()
    assert not cache.is_installed(FIXED)
    assert cache.acquire(FIXED).is_usable
    assert cache.stages == ["resolving", "installing", "patching", "probing", "ready"]
    assert cache.is_installed(PLAIN)
    assert cache.is_installed(ask("2.11.0", patch=Patch(name="next", text="another")))


@pytest.mark.usefixtures("stand_in_uv")
def test_a_patch_that_does_not_apply(old: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """The environment is unbuildable with file and hunk, nothing is left of it, and the release can be used."""
    cache = make_cache()
    wrong = ask("2.11.0", patch=Patch(name="wrong", text=behaviour_patch("older", "new")))
    environment = cache.acquire(wrong)
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason is not None
    assert "patch wrong does not apply: torch/__init__.py at @@ -" in environment.reason
    assert not (folder_of(tmp_path / "home", wrong) / "venv").exists()
    assert environment.axes["patch"].startswith("wrong@")
    assert cache.acquire(PLAIN).is_usable


@pytest.mark.usefixtures("stand_in_uv")
def test_a_release_that_has_the_patch(wheels: Path, make_cache: MakeCache) -> None:
    """Where the release has the change, the environment is that release, and says so."""
    build_wheel(wheels, "2.11.0", behaviour="new")
    environment = make_cache().acquire(FIXED)
    assert environment.is_usable
    assert environment.notes == ("patch fix is in this release already: nothing is changed",)


@pytest.mark.usefixtures("stand_in_uv")
def test_half_an_overlay_is_never_used(
    old: Path, tmp_path: Path, make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed while it patches leaves nothing that a later run takes for whole."""
    home, cache = tmp_path / "home", make_cache()
    cache.acquire(PLAIN)
    before = hashes(folder_of(home, PLAIN) / "venv")

    def killed(venv: Path, target: Path, _files: object) -> None:
        (target / "lib").mkdir(parents=True)  # what a rename cannot leave, and an evicted environment can
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "make_overlay", killed)
        with pytest.raises(KeyboardInterrupt):
            cache.acquire(FIXED)
    again = make_cache()
    assert again.known(FIXED) is None
    assert again.acquire(FIXED).is_usable
    assert behaviour_in(home, FIXED) == "behaviour = 'new'"
    assert hashes(folder_of(home, PLAIN) / "venv") == before


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_the_patched_outlives_what_it_is_made_of(old: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """When the plain release is evicted, the patched one stays whole; neither needs to be resolved or probed again."""
    home, cache = tmp_path / "home", make_cache()
    environment = cache.acquire(FIXED)
    assert {PLAIN.install_key, FIXED.install_key} <= Disk(home).in_use()  # evicting it now would free nothing
    cache.release(FIXED)
    commander = Commander(home=home, logs=home, timeout=0)
    Disk(home).clear(PLAIN.install_key, commander)
    assert not (folder_of(home, PLAIN) / "venv").exists()
    argv = [str(environment.interpreter), "-c", "import torch; print(torch.behaviour)"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "new\n"
    Disk(home).clear(FIXED.install_key, commander)
    again = make_cache()
    assert again.known(FIXED) == environment
    assert again.acquire(FIXED) == environment
    assert again.stages == ["installing", "patching", "ready"]


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_the_patched_makes_room(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """A patched release takes no more disk than the plain one, and is evicted with it when it is not in use."""
    for version in ("2.11.0", "2.12.0"):
        build_wheel(wheels, version, behaviour="old", padding=150_000)
    cache = make_cache(disk_budget_mb=0.25, unknown_size_mb=0.2)
    for request in (PLAIN, FIXED):
        environment = cache.acquire(request)
        assert environment.is_usable, environment.reason
        cache.release(request)
    assert cache.acquire(ask("2.12.0")).is_usable
    assert cache.stages.count("evicting") == 2
    assert not cache.is_installed(FIXED)


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_a_wheel_built_again_is_patched_again(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """When a local wheel has changed, its overlay is made anew from the new one."""
    wheel = build_wheel(tmp_path / "own", "2.11.0", behaviour="old")
    request = ask(str(wheel), patch=FIX)
    cache = make_cache()
    first = cache.acquire(request)
    cache.release(request)
    build_wheel(tmp_path / "own", "2.11.0", behaviour="old", padding=10)
    second = make_cache().acquire(request)
    assert second.is_usable, second.reason
    assert first.id != second.id
    padding = site_packages(folder_of(tmp_path / "home", request) / "venv") / "torch" / "lib" / "padding.txt"
    assert padding.exists()


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_many_patches_of_one_release_at_once(old: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """Several patches of a release, made at once by two runs, install it once, and each is what its patch says."""
    requests = [ask("2.11.0", patch=Patch(name=f"p{n}", text=behaviour_patch("old", f"new {n}"))) for n in range(4)]
    caches = [make_cache(), make_cache()]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda pair: pair[0].acquire(pair[1]), [(c, r) for c in caches for r in requests]))
    assert all(environment.is_usable for environment in made), [environment.reason for environment in made]
    assert len({environment.id for environment in made}) == 4
    assert sum(cache.stages.count("installing") for cache in caches) == 1
    behaviours = [behaviour_in(tmp_path / "home", request) for request in requests]
    assert behaviours == [f"behaviour = 'new {n}'" for n in range(4)]


@pytest.mark.usefixtures("stand_in_uv")
def test_an_interrupt_ends_it(old: Path, make_cache: MakeCache) -> None:
    """An interrupt while it is made is no failure that is kept."""
    cancelled = threading.Event()
    cache = make_cache(watch=lambda stage: cancelled.set() if stage == "patching" else None)
    environment = cache.acquire(FIXED, cancelled)
    assert environment.reason == "interrupted"
    assert make_cache().acquire(FIXED).is_usable

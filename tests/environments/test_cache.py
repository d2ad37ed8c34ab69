"""Environments made by the real uv from stand-in wheels."""

import json
import os
import re
import shutil
import threading
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.shell import wait_for
from tests.environments.conftest import PYTHON, MakeCache, ask, made_by
from tests.patience import PATIENCE
from tests.wheels import Index, build_companion, build_wheel, serve
from whichtorch.environments import canary, commander
from whichtorch.environments.configs import cell_environ
from whichtorch.environments.index.sources import Sources
from whichtorch.environments.installation import installed_packages
from whichtorch.model import Build, Config, MetaKernel, Outcome, Request


def folder_of(home: Path, request: Request) -> Path:
    """Return where an installation is."""
    return home / "envs" / request.install_key


def test_installs_what_was_asked_for(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """An environment holds the torch asked for, is probed, and says all of it."""
    build_wheel(wheels, "2.11.0")
    build_wheel(wheels, "2.12.0")
    cache = make_cache()
    environment = cache.acquire(ask("2.11.0"))
    assert environment.is_usable, environment.reason
    assert environment.torch == "2.11.0"
    assert environment.python.startswith(PYTHON + ".")
    assert environment.packages == {"numpy": "2.2.0", "torch": "2.11.0"}
    meta_mm = MetaKernel(registered="RegisterMeta.cpp:7", kind="kernel", python=False)
    assert environment.fingerprint.meta_mm == meta_mm
    assert environment.label == "torch-2.11.0-pypi"
    assert environment.interpreter == folder_of(tmp_path / "home", ask("2.11.0")) / "venv" / "bin" / "python"
    assert cache.stages == ["resolving", "installing", "probing", "ready"]


def test_reuses_without_uv_or_network(wheels: Path, index: Index, make_cache: MakeCache) -> None:
    """A second run knows the environment at once and installs nothing."""
    build_wheel(wheels, "2.11.0")
    first = make_cache().acquire(ask("2.11.0"))
    index.paths.clear()
    cache = make_cache()
    assert cache.known(ask("2.11.0")) == first
    assert cache.acquire(ask("2.11.0")) == first
    assert cache.stages == ["ready"]
    assert index.paths == []


@pytest.mark.thorough
@pytest.mark.parametrize("shared", [False, True])
def test_a_damaged_environment_is_made_again(wheels: Path, tmp_path: Path, make_cache: MakeCache, shared: bool) -> None:
    """A file that is missing, or cut in uv's cache as well, costs an install; torch is whole afterwards."""
    build_wheel(wheels, "2.11.0")
    first = made_by(make_cache(), ask("2.11.0"))
    (file,) = folder_of(tmp_path / "home", ask("2.11.0")).glob("venv/lib/python*/site-packages/torch/version.py")
    whole = file.read_text()
    if shared:
        file.write_text("")  # a hard link
    else:
        file.unlink()
    cache = make_cache()
    assert cache.acquire(ask("2.11.0")) == first
    assert "installing" in cache.stages
    assert file.read_text() == whole


@pytest.mark.thorough
def test_a_wheel_that_was_built_damaged_is_unpacked_again_only_once(
    wheels: Path, tmp_path: Path, make_cache: MakeCache
) -> None:
    """The RECORD of torch 1.10.2 has a wrong size. Its environments share their files all the same."""
    for path in (build_wheel(wheels, "2.11.0"), build_companion(wheels, "lib", "1.0")):
        with zipfile.ZipFile(path) as wheel:
            texts = {name: wheel.read(name).decode() for name in wheel.namelist()}
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in texts.items():
                wheel.writestr(name, re.sub(r"((?:torch/version|lib/__init__).py,[^,]*),", r"\1,9", text))
    requests = [ask("2.11.0"), ask("2.11.0", requirements=("lib",))]
    assert all(make_cache().acquire(request).is_usable for request in requests)
    files = [
        next(folder_of(tmp_path / "home", request).glob("venv/lib/python*/site-packages/torch/version.py"))
        for request in requests
    ]
    assert files[0].samefile(files[1])


@pytest.mark.usefixtures("stand_in_uv")
def test_a_moved_state_folder_keeps_what_is_known(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """Its environments are known where they are now, and made again there before they are used."""
    build_wheel(wheels, "2.11.0")
    first = made_by(make_cache(), ask("2.11.0"))
    (tmp_path / "home").rename(tmp_path / "elsewhere")
    cache = make_cache(home=tmp_path / "elsewhere")
    known = cache.known(ask("2.11.0"))
    assert known is not None
    assert known.id == first.id
    assert cache.acquire(ask("2.11.0")) == known
    assert known.interpreter is not None
    assert known.interpreter.is_relative_to(tmp_path / "elsewhere")
    assert "installing" in cache.stages


def test_knows_nothing_at_first(make_cache: MakeCache) -> None:
    """What was never installed is not known."""
    assert make_cache().known(ask("2.11.0")) is None
    assert not make_cache().is_installed(ask("2.11.0"))


def test_a_version_is_held_though_the_first_index_has_no_wheel_of_it_for_this_python(
    wheels: Path, tmp_path: Path, index: Index, make_cache: MakeCache
) -> None:
    """Uv takes a preferred version from the first index that has it, and does not look at the others."""
    for version in ("1.0", "2.0"):
        build_companion(wheels, "lib", version)
        build_companion(wheels, "app", version, requires=(f"other=={version}", "lib"))
        build_companion(wheels, "other", version)
    foreign = build_companion(tmp_path / "foreign", "lib", "1.0")
    foreign.rename(foreign.with_name("lib-1.0-cp27-none-any.whl"))
    with serve(tmp_path / "foreign") as first:
        cache = make_cache(sources=Sources(index_url=index.url, extra_index_urls=(first.url,)))
        held = ("app==1.0", "lib==1.0", "other==1.0")
        locks = [
            set(cache.locked(requirements, Build(name="pypi"), PYTHON, preferred=held))
            for requirements in (["app"], ["app==2.0"], ["app==2.0", "lib==1.0"])
        ]
    changed = {"app==2.0", "lib==1.0", "other==2.0"}
    assert locks == [set(held), changed, changed]


@pytest.mark.usefixtures("stand_in_uv")
def test_configs_share_an_installation(wheels: Path, make_cache: MakeCache) -> None:
    """Requests that differ in config alone are one installation and two identities."""
    build_wheel(wheels, "2.11.0")
    cache = make_cache()
    plain = cache.acquire(ask("2.11.0"))
    single = cache.acquire(ask("2.11.0", config=Config(name="single", env={"OMP_NUM_THREADS": "1"})))
    assert single.interpreter == plain.interpreter
    assert single.id != plain.id
    assert Counter(cache.stages) == {"resolving": 1, "installing": 1, "probing": 2, "ready": 2}


@pytest.mark.usefixtures("stand_in_uv")
def test_a_config_is_part_of_the_label(wheels: Path, make_cache: MakeCache) -> None:
    """What is known is told under the name that this request gives it."""
    build_wheel(wheels, "2.11.0")
    cache = make_cache()
    cache.acquire(ask("2.11.0"))
    shown = ask("2.11.0", show_python=True)
    known = cache.known(shown)
    assert known is not None
    assert known.label == f"torch-2.11.0-pypi-py{PYTHON}"
    assert known.options == shown.options


def test_old_torch_gets_what_it_does_not_declare(wheels: Path, make_cache: MakeCache) -> None:
    """The needs of the table are installed, and those that hold a version back are told with their reason."""
    build_wheel(wheels, "2.1.2")
    environment = make_cache().acquire(ask("2.1.2"))
    assert environment.packages == {"numpy": "1.26.4", "setuptools": "75.0.0", "torch": "2.1.2"}
    assert [note.split(":")[0] for note in environment.notes] == ["numpy<2", "setuptools<80"]


@pytest.mark.thorough
def test_the_lowest_versions_are_those_that_were_named(wheels: Path, make_cache: MakeCache) -> None:
    """`lowest-direct` takes the oldest of what is asked for, and the usual version of what only torch needs."""
    build_wheel(wheels, "2.11.0")
    for name, versions in {"numpy": ("1.0", "2.3"), "lib": ("1.0", "1.4", "2.0")}.items():
        for version in versions:
            build_companion(wheels, name, version)
    asked = ask("2.11.0", requirements=("lib>=1.2",), resolution="lowest-direct")
    packages = made_by(make_cache(), asked).packages
    assert (packages["lib"], packages["numpy"]) == ("1.4", "2.3")
    assert asked.label.endswith("+lowest-direct")
    assert asked.install_key != ask("2.11.0", requirements=("lib>=1.2",)).install_key


@pytest.mark.thorough
def test_an_override_takes_the_place_of_a_need(wheels: Path, make_cache: MakeCache) -> None:
    """A package that torch does not declare is installed as overridden, and what is said against that is told."""
    build_wheel(wheels, "2.1.2")
    cache = make_cache()
    environment = cache.acquire(ask("2.1.2", overrides=("numpy==2.2.0",)))
    assert environment.packages == {"numpy": "2.2.0", "setuptools": "75.0.0", "torch": "2.1.2"}
    assert environment.notes[0].startswith("numpy==2.2.0: torch before 2.3 was compiled against numpy 1")
    assert environment.label == "torch-2.1.2-pypi+override-numpy==2.2.0"
    assert environment.id != cache.acquire(ask("2.1.2", requirements=("numpy==2.2.0",))).id


def test_an_override_is_noted_once(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """Evicted and installed again, an environment has the note that it had."""
    build_wheel(wheels, "2.11.0", requires=("numpy<2", "absent; extra == 'all'"))
    request = ask("2.11.0", overrides=("numpy==2.2.0",))
    first = made_by(make_cache(), request)
    assert first.notes == ("numpy 2.2.0, by --override: torch 2.11.0 asks for numpy<2",)
    (folder_of(tmp_path / "home", request) / "complete").unlink()
    assert make_cache().acquire(request) == first


def test_without_news_nothing_has_another_key() -> None:
    """Environments of earlier versions are found."""
    request = Request(torch="2.11.0", python="3.11", build=Build(name="pypi"), config=Config(name="default"))
    assert request.install_key == "4e0a8f278fa8"  # as of the version before there were any
    assert request.model_copy(update={"overrides": ("numpy==2.2.0",)}).install_key != request.install_key


def test_requirements_of_the_build_go_before_the_needs(wheels: Path, make_cache: MakeCache) -> None:
    """A build that names numpy has the last word on it."""
    build_wheel(wheels, "2.11.0")
    build = Build(name="old-numpy", find_links=str(wheels), requirements=("numpy==1.26.4",))
    assert make_cache().acquire(ask("2.11.0", build=build)).packages["numpy"] == "1.26.4"


@pytest.mark.usefixtures("stand_in_uv")
def test_two_threads_install_once(wheels: Path, make_cache: MakeCache) -> None:
    """Two threads that want the same environment at once make it once."""
    build_wheel(wheels, "2.11.0")
    cache = make_cache()
    with ThreadPoolExecutor(2) as pool:
        pair = list(pool.map(cache.acquire, [ask("2.11.0")] * 2))
    assert pair[0] == pair[1]
    assert cache.stages.count("installing") == 1


@pytest.mark.usefixtures("stand_in_uv")
def test_two_runs_install_once(wheels: Path, make_cache: MakeCache) -> None:
    """Two tools with one state folder make an environment once: the second waits for the first."""
    build_wheel(wheels, "2.11.0")
    caches = [make_cache(), make_cache()]
    with ThreadPoolExecutor(2) as pool:
        pair = list(pool.map(lambda cache: cache.acquire(ask("2.11.0")), caches))
    assert pair[0] == pair[1]
    assert sum(cache.stages.count("installing") for cache in caches) == 1


@pytest.mark.thorough
def test_many_installs_at_once(wheels: Path, make_cache: MakeCache) -> None:
    """Parallel installs from one uv cache wait for each other instead of failing."""
    versions = [f"2.{minor}.0" for minor in range(3, 9)]
    for version in versions:
        build_wheel(wheels, version)
    cache = make_cache()
    with ThreadPoolExecutor(6) as pool:
        environments = list(pool.map(lambda version: cache.acquire(ask(version)), versions))
    assert [environment.packages["torch"] for environment in environments] == versions


@pytest.mark.usefixtures("stand_in_uv")
def test_half_made_is_never_reused(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """An environment whose install was cut off is removed and made anew."""
    build_wheel(wheels, "2.11.0")
    cache = make_cache()
    cache.acquire(ask("2.11.0"))
    cache.release(ask("2.11.0"))
    folder = folder_of(tmp_path / "home", ask("2.11.0"))
    (folder / "complete").unlink()
    (folder / "venv" / "left over").touch()
    again = make_cache()
    assert again.acquire(ask("2.11.0")).is_usable
    assert "installing" in again.stages
    assert not (folder / "venv" / "left over").exists()


def test_an_install_that_fails_leaves_nothing(
    wheels: Path, index: Index, tmp_path: Path, make_cache: MakeCache
) -> None:
    """A version that is not there is unbuildable with uv's words, and the next run tries again."""
    cache = make_cache()
    build_wheel(wheels, "2.12.0")
    environment = cache.acquire(ask("2.11.0"))
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason is not None
    assert "torch==2.11.0" in environment.reason
    assert "\n" not in environment.reason
    assert environment.log is not None
    assert "torch==2.11.0" in environment.log.read_text()
    assert cache.acquire(ask("2.11.0")) == environment
    assert cache.stages.count("resolving") == 1
    cache.release(ask("2.11.0"))  # does nothing
    build_wheel(wheels, "2.11.0")
    with serve(wheels) as other:  # uv has kept the page of the first
        assert make_cache(sources=Sources(index_url=other.url)).acquire(ask("2.11.0")).is_usable


def test_a_lock_is_of_its_indexes(make_cache: MakeCache, tmp_path: Path) -> None:
    """What was resolved from one place is not the answer for another one."""
    locks = []
    for version in ("2.11.0", "2.13.0", "2.11.0"):
        folder = tmp_path / version
        folder.mkdir(exist_ok=True)
        build_wheel(folder, version, requires=())
        cache = make_cache(sources=Sources(index_url=None, find_links=(str(folder),)))
        locks.append(cache.locked(("torch",), ask(version).build, PYTHON))
    assert locks == [("torch==2.11.0",), ("torch==2.13.0",), ("torch==2.11.0",)]


def test_an_install_that_hangs_is_killed(wheels: Path, index: Index, make_cache: MakeCache) -> None:
    """An index that never answers makes an environment unbuildable, not a run that hangs."""
    index.held = threading.Event()
    environment = make_cache(install_timeout=1).acquire(ask("2.11.0"))
    index.held.set()
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason == "resolving took longer than 1 s"


def test_an_interrupt_ends_an_install(wheels: Path, index: Index, make_cache: MakeCache) -> None:
    """An interrupt ends an install at once and is not kept as a failure."""
    build_wheel(wheels, "2.11.0")
    index.held = threading.Event()
    cancelled = threading.Event()
    cache = make_cache()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.acquire, ask("2.11.0"), cancelled)
        assert index.arrived.wait(PATIENCE)
        cancelled.set()
        environment = waiting.result()
    index.held.set()
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason == "interrupted"
    index.held = None
    assert cache.acquire(ask("2.11.0")).is_usable


@pytest.mark.thorough
def test_plain_version_is_not_served_by_a_local_one(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """2.13.0 means the index's own wheel, though the user's find-links offer 2.13.0+cpu."""
    build_wheel(wheels, "2.13.0")
    build_wheel(tmp_path / "links", "2.13.0+cpu")
    with serve(wheels) as index:
        sources = Sources(index_url=index.url, find_links=(str(tmp_path / "links"),))
        cache = make_cache(sources=sources)
        for version in ("2.13.0", "2.13.0+cpu"):
            assert cache.acquire(ask(version)).packages["torch"] == version


def test_a_silent_substitute_is_unbuildable(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """Where only another version than the one asked for is to be had, that is said, not installed."""
    build_wheel(tmp_path / "links", "2.13.0+cpu")
    with serve(wheels) as index:
        sources = Sources(index_url=index.url, find_links=(str(tmp_path / "links"),))
        environment = make_cache(sources=sources).acquire(ask("2.13.0"))
    assert environment.outcome is Outcome.UNBUILDABLE
    assert "only torch==2.13.0+cpu is available" in str(environment.reason)


def test_a_build_with_an_index_of_its_own_means_its_local_versions(
    wheels: Path, tmp_path: Path, make_cache: MakeCache
) -> None:
    """On the cpu index 2.13.0 means 2.13.0+cpu, and the rest comes from the usual place."""
    build_wheel(tmp_path / "own", "2.13.0+cpu")
    with serve(tmp_path / "own") as own:
        build = Build(name="cpu", index_url=own.url)
        environment = make_cache().acquire(ask("2.13.0", build=build))
    assert environment.packages == {"numpy": "2.2.0", "torch": "2.13.0+cpu"}


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_a_wheel_is_an_environment(tmp_path: Path, make_cache: MakeCache) -> None:
    """A wheel's path is installed; built again under the same name it is another environment."""
    wheel = build_wheel(tmp_path / "built", "2.14.0a0+git1234567")
    cache = make_cache()
    first = cache.acquire(ask(str(wheel)))
    cache.release(ask(str(wheel)))
    assert first.torch == "2.14.0a0+git1234567"
    assert cache.known(ask(str(wheel))) == first
    build_wheel(tmp_path / "built", "2.14.0a0+git1234567", behaviour="fixed")
    again = make_cache()
    assert again.known(ask(str(wheel))) is None
    second = again.acquire(ask(str(wheel)))
    assert second.is_usable, second.reason
    assert second.id != first.id


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("fails to import", "the canary fails at 'import torch': ImportError: libtorch_stand_in.so"),
        ("dies on import", "the canary fails at 'import torch': it died with SIGABRT"),
        ("miscalculates", "the canary fails at 'matmul on the CPU': RuntimeError: 4x3 ones times"),
        ("old", "the canary fails at 'import torch.absent': ModuleNotFoundError: No module named 'torch.absent'"),
    ],
)
@pytest.mark.usefixtures("stand_in_uv")
def test_a_failed_canary_is_broken(wheels: Path, make_cache: MakeCache, behaviour: str, reason: str) -> None:
    """A torch that cannot multiply, or import what is asked for, is broken, with step and log, and known as nothing."""
    build_wheel(wheels, "2.11.0", behaviour=behaviour)
    cache = make_cache()
    environment = cache.acquire(ask("2.11.0").model_copy(update={"imported": ("torch", "torch.absent")}))
    assert environment.outcome is Outcome.BROKEN
    assert environment.reason is not None
    assert environment.reason.startswith(reason)
    assert environment.log is not None
    assert environment.log.exists()
    assert environment.packages["torch"] == "2.11.0"
    assert cache.known(ask("2.11.0")) is None
    assert cache.acquire(ask("2.11.0")) == environment


@pytest.mark.usefixtures("stand_in_uv")
def test_the_log_of_a_broken_canary_has_the_traceback(wheels: Path, make_cache: MakeCache) -> None:
    """The log of a failed import shows where it failed."""
    build_wheel(wheels, "2.11.0", behaviour="fails to import")
    log = make_cache().acquire(ask("2.11.0")).log
    assert log is not None
    assert "Traceback (most recent call last)" in log.read_text()


@pytest.mark.usefixtures("stand_in_uv")
def test_a_newer_probe_is_asked_again(wheels: Path, make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is probed anew by a tool that asks more; its identity stays."""
    build_wheel(wheels, "2.11.0")
    before = make_cache().acquire(ask("2.11.0"))
    monkeypatch.setattr(canary, "PROBE_DIGEST", "others")
    cache = make_cache()
    assert cache.acquire(ask("2.11.0")) == before
    assert cache.stages == ["probing", "ready"]
    cache.release(ask("2.11.0"))


def test_a_planned_problem_is_passed_on(make_cache: MakeCache) -> None:
    """What planning knows to be impossible is unbuildable without trying."""
    cache = make_cache()
    request = ask(">=2.9", problem="the index http://nowhere cannot be read")
    environment = cache.acquire(request)
    assert (environment.outcome, environment.reason) == (Outcome.UNBUILDABLE, request.problem)
    assert cache.known(request) is None


def existing(interpreter: Path, config: Config | None = None) -> Request:
    """Return a request for an environment of the user's."""
    build = Build(name="existing")
    return Request(torch="", python="", build=build, config=config or Config(name="default"), interpreter=interpreter)


@pytest.mark.usefixtures("stand_in_uv")
def test_an_existing_interpreter_is_used_as_it_is(wheels: Path, make_cache: MakeCache) -> None:
    """An environment of the user's is probed, known again, and probed anew once it has changed."""
    build_wheel(wheels, "2.11.0")
    cache = make_cache()
    own = cache.acquire(ask("2.11.0"))
    assert own.interpreter is not None
    request = existing(own.interpreter)
    environment = cache.acquire(request)
    assert environment.is_usable, environment.reason
    assert environment.torch == "2.11.0"
    assert environment.packages["numpy"] == "2.2.0"
    assert make_cache().known(request) == environment
    cache.release(request)
    site = own.interpreter.parent.parent / "lib" / f"python{PYTHON}" / "site-packages"
    (site / "extra-1.0.dist-info").mkdir()
    (site / "extra-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    changed = make_cache()
    assert changed.known(request) is None
    assert changed.acquire(request).id != environment.id


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_builds_of_one_release_are_different_environments(wheels: Path, make_cache: MakeCache, tmp_path: Path) -> None:
    """Builds with other options tell the same version, and so does a build that was made again."""
    build_wheel(wheels, "2.11.0")
    own = make_cache().acquire(ask("2.11.0"))
    assert own.interpreter is not None
    shutil.copytree(own.interpreter.parent.parent, tmp_path / "second", symlinks=True)
    second = existing(tmp_path / "second" / "bin" / "python")
    identity = make_cache().acquire(second).id
    assert identity != make_cache().acquire(existing(own.interpreter)).id
    (version,) = (tmp_path / "second").glob("lib/python*/site-packages/torch/version.py")
    os.utime(version, ns=(version.stat().st_atime_ns, version.stat().st_mtime_ns + 1_000_000_000))
    assert make_cache().acquire(second).id != identity


@pytest.mark.thorough
@pytest.mark.usefixtures("stand_in_uv")
def test_what_is_edited_in_an_environment_of_the_users_makes_it_another(wheels: Path, make_cache: MakeCache) -> None:
    """A file of torch, and one of a project that was installed with `pip install -e`."""
    build_wheel(wheels, "2.11.0")
    own = make_cache().acquire(ask("2.11.0"))
    assert own.interpreter is not None
    (site,) = own.interpreter.parent.parent.glob("lib/python*/site-packages")
    project = wheels.parent / "project"
    (project / "code").mkdir(parents=True)
    files = [site / "torch" / "edited.py", project / "code" / "module.py"]
    for file in files:
        file.write_text("x = 1\n")
    (site / "project-1.0.dist-info").mkdir()
    (site / "project-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: project\nVersion: 1.0\n")
    told = {"url": project.as_uri(), "dir_info": {"editable": True}}
    (site / "project-1.0.dist-info" / "direct_url.json").write_text(json.dumps(told))
    request = existing(own.interpreter)
    seen = [make_cache().acquire(request).id]
    for file in files:
        assert make_cache().known(request) is not None
        file.write_text("x = 2\nand_more = 3\n")
        assert make_cache().known(request) is None
        seen.append(make_cache().acquire(request).id)
    assert len({*seen}) == 3


def test_an_interpreter_that_is_not_there(tmp_path: Path, make_cache: MakeCache) -> None:
    """A path without an interpreter is unbuildable and named."""
    environment = make_cache().acquire(existing(tmp_path / "bin" / "python"))
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason == f"there is no interpreter {tmp_path}/bin/python"


@pytest.mark.thorough
def test_side_installs_are_made_once(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """What a config wants beside the environment is installed once, outside it, and named to it."""
    build_wheel(wheels, "2.11.0")
    build_wheel(wheels, "2.12.0")
    build_companion(wheels, "helper", "1.0")
    config = Config(name="helped", env={"HELPER": "{beside}/lib"}, beside=("helper",))
    cache = make_cache()
    environments = [cache.acquire(ask(version, config=config)) for version in ("2.11.0", "2.12.0")]
    assert all("helper" not in environment.packages for environment in environments)
    home = tmp_path / "home"
    folders = {cell_environ(ask("2.11.0", config=config), made, home)["HELPER"] for made in environments}
    assert len(folders) == 1
    prefix = Path(folders.pop()).parent
    assert [package.name for package in installed_packages(prefix)] == ["helper"]


@pytest.mark.usefixtures("stand_in_uv")
def test_metadata_stays_readable_json(wheels: Path, tmp_path: Path, make_cache: MakeCache) -> None:
    """What is kept of an installation is plain JSON with names, versions and sizes."""
    build_wheel(wheels, "2.11.0", padding=5000)
    make_cache().acquire(ask("2.11.0"))
    text = (folder_of(tmp_path / "home", ask("2.11.0")) / "installation.json").read_text()
    sizes = {package["name"]: package["size"] for package in json.loads(text)["packages"]}
    assert sizes["torch"] > 5000


def test_an_interrupt_ends_the_download_of_a_python(
    tmp_path: Path, make_cache: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is cancelled does not wait for the Python that it needs."""
    begun, cancelled = tmp_path / "begun", threading.Event()
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 3600\n")
    uv.chmod(0o755)
    monkeypatch.setattr(commander, "uv_path", lambda: str(uv))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(make_cache().acquire, ask("2.11.0").model_copy(update={"python": "3.99"}), cancelled)
        wait_for(lambda: begun.exists() or future.done())
        cancelled.set()
        assert future.result(PATIENCE).reason == "interrupted"

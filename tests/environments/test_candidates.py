"""Wheels of release candidates change under their names: each is an environment of its own."""

import hashlib
from pathlib import Path

import pytest

from tests.environments.conftest import MakeCache
from tests.environments.test_kept_wheels import evict, kept_in
from tests.wheels import Index, build_companion, build_wheel
from whichtorch.environments.expansion import expand
from whichtorch.environments.index import sources
from whichtorch.environments.matrix_file import DEFAULT_FILE, MatrixFile, read_matrix_file
from whichtorch.model import Outcome, Request

VERSION = "2.16.0rc2+cpu"
NAME = f"torch-{VERSION}-py3-none-any.whl"


@pytest.fixture
def file(index: Index, monkeypatch: pytest.MonkeyPatch) -> MatrixFile:
    """Return a matrix of the newest candidate, where any channel is the index of the test."""
    plain = sources.build_named("test-cpu", {})
    build = plain.model_copy(update={"index_url": index.url})
    monkeypatch.setattr(sources, "build_named", lambda name, _own: build if name == build.name else None)
    return read_matrix_file(DEFAULT_FILE).with_axes(torch=("latest",), build=("test-cpu",))


def publish(wheels: Path, index: Index, behaviour: str, *, version: str = VERSION, digests: bool = True) -> None:
    """Put a candidate into the index, in the place of the one of that name."""
    numpy = ("numpy==1.26.4",) if behaviour == "second" else ()
    wheel = build_wheel(wheels, version, behaviour=behaviour, requires=numpy)
    index.digests[wheel.name] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if not digests:
        index.digests.clear()
        index.sizes = True


def asked(file: MatrixFile, tmp_path: Path, label: str = f"torch-{VERSION}-test-cpu") -> Request:
    (request,) = expand(file, cache=tmp_path / "home" / "cache").requests
    assert request.label == label
    return request


@pytest.mark.thorough
@pytest.mark.parametrize("digests", [True, False])
def test_a_changed_wheel_is_another_environment(
    wheels: Path, index: Index, file: MatrixFile, tmp_path: Path, make_cache: MakeCache, digests: bool
) -> None:
    """It is noticed at once, by the digest or the size that the index names; what the new one needs is installed."""
    publish(wheels, index, "first", digests=digests)
    first = asked(file, tmp_path)
    before = make_cache().acquire(first)
    assert before.is_usable, before.reason
    assert (before.torch, before.packages["numpy"]) == (VERSION, "2.2.0")
    assert asked(file, tmp_path) == first
    publish(wheels, index, "second", digests=digests)
    second = asked(file, tmp_path)
    assert second.key != first.key
    after = make_cache().acquire(second)
    assert after.is_usable, after.reason
    assert (after.torch, after.packages["numpy"]) == (VERSION, "1.26.4")
    assert after.id != before.id
    assert after.label == before.label
    evict(tmp_path)
    assert make_cache().acquire(first) == before  # its wheel was kept
    assert kept_in(tmp_path) == [NAME, NAME]


def test_the_newest_of_the_channel(wheels: Path, index: Index, file: MatrixFile, tmp_path: Path) -> None:
    """Pre-releases count, and a final number is newer than its candidates."""
    for version in ("2.15.0+cpu", "2.16.0rc1+cpu", VERSION):
        publish(wheels, index, "", version=version)
    assert asked(file, tmp_path).torch == VERSION
    publish(wheels, index, "", version="2.16.0+cpu")
    assert asked(file, tmp_path, "torch-2.16.0+cpu-test-cpu").torch == "2.16.0+cpu"
    every = file.with_axes(torch=(">=2.15", "2.16.0rc1"))
    versions = [request.torch for request in expand(every, cache=tmp_path / "home" / "cache").requests]
    assert versions == ["2.15.0+cpu", "2.16.0rc1+cpu", VERSION, "2.16.0+cpu"]


def test_a_wheel_that_changes_in_between(
    wheels: Path, index: Index, file: MatrixFile, tmp_path: Path, make_cache: MakeCache
) -> None:
    """What was chosen is installed, or nothing."""
    publish(wheels, index, "first")
    request = asked(file, tmp_path)
    publish(wheels, index, "second")
    environment = make_cache().acquire(request)
    assert environment.outcome is Outcome.UNBUILDABLE
    assert environment.reason == (
        f"downloading failed: torch {VERSION}: the index has replaced this wheel since it was listed; "
        "give the command again"
    )
    assert kept_in(tmp_path) == []


@pytest.mark.thorough
def test_another_machine_installs_the_same(
    wheels: Path, index: Index, file: MatrixFile, tmp_path: Path, make_cache: MakeCache
) -> None:
    """What one worker has resolved names no path of its own."""
    build_companion(wheels, "numpy", "2.3.0")
    publish(wheels, index, "first")
    request = Request.model_validate_json(asked(file, tmp_path).model_dump_json())
    cache = make_cache()
    first = cache.acquire(request)
    lock = cache.lock_of(request)
    assert lock is not None
    assert f"torch=={VERSION}" in lock[0].splitlines()
    assert str(tmp_path) not in lock[0]
    other = make_cache(home=tmp_path / "other")
    other.pin(request, *lock)
    assert other.acquire(request).id == first.id

"""What a build's name means, and what `auto` takes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from matrix.environments.index.builds import PYTORCH_INDEX, PYTORCH_INDEX_VARIABLE, answers, build_named, choose_auto
from matrix.errors import UsageError
from matrix.model import Build
from tests.wheels import build_wheel, serve


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("pypi", None),
        ("cpu", f"{PYTORCH_INDEX}/cpu"),
        ("cu128", f"{PYTORCH_INDEX}/cu128"),
        ("rocm6", f"{PYTORCH_INDEX}/rocm6"),
        ("rocm6.2.4", f"{PYTORCH_INDEX}/rocm6.2.4"),
        ("xpu", f"{PYTORCH_INDEX}/xpu"),
        ("nightly-cpu", f"{PYTORCH_INDEX}/nightly/cpu"),
        ("nightly-cu130", f"{PYTORCH_INDEX}/nightly/cu130"),
    ],
)
def test_build_named(name: str, url: str | None) -> None:
    """A build is a folder of the PyTorch index, or the user's own index."""
    build = build_named(name, {}, {})
    assert (build.name, build.index_url) == (name, url)
    assert build.nightly == name.startswith("nightly")


def test_a_mirror() -> None:
    """The PyTorch index can be a mirror."""
    environ = {PYTORCH_INDEX_VARIABLE: "http://mirror/whl/"}
    assert build_named("cpu", {}, environ).index_url == "http://mirror/whl/cpu"


def test_builds_of_the_matrix_file_come_first() -> None:
    """A [build.cpu] of the user's is what cpu means."""
    mine = Build(name="cpu", find_links="/wheels")
    assert build_named("cpu", {"cpu": mine}) == mine


@pytest.mark.parametrize(
    ("name", "hint"), [("cuda128", "cu128"), ("nightly-cp", "nightly-cpu"), ("mime", "mine"), ("", "known are")]
)
def test_unknown_builds(name: str, hint: str) -> None:
    """An unknown name is the user's mistake, told with near ones."""
    with pytest.raises(UsageError) as error:
        build_named(name, {"mine": Build(name="mine")})
    assert hint in error.value.hint


def test_auto_with_a_gpu(tmp_path: Path) -> None:
    """Where a GPU is visible, the index's own wheel is taken, and nobody is asked."""
    build, reason = choose_auto(tmp_path, visible_gpu=lambda: "/dev/nvidia0", index_answers=pytest.fail)
    assert (build.name, reason) == ("pypi", "a GPU is visible (/dev/nvidia0)")


def test_auto_without_a_gpu(tmp_path: Path) -> None:
    """Without a GPU it is cpu where that index answers, else pypi, and the answer is kept."""
    environ = {PYTORCH_INDEX_VARIABLE: "http://me:secret@mirror"}
    for number, (answer, name) in enumerate([(True, "cpu"), (False, "pypi")]):
        cache = tmp_path / str(number)
        urls: list[str] = []

        def ask(url: str, urls: list[str] = urls, answer: bool = answer) -> bool:
            urls.append(url)
            return answer

        for _ in range(2):
            build, reason = choose_auto(cache, environ=environ, visible_gpu=lambda: None, index_answers=ask)
            assert build.name == name
            assert "http://mirror/cpu" in reason
            assert "secret" not in reason
        assert urls == ["http://me:secret@mirror/cpu"]
        os.utime(cache / "auto.json", (0, 0))
        choose_auto(cache, environ=environ, visible_gpu=lambda: None, index_answers=ask)
        assert len(urls) == 2


def test_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index answers if it says anything but that it is out of order, in time."""
    build_wheel(tmp_path, "2.0.0")
    with serve(tmp_path) as index:
        assert answers(index.url)
        assert answers(index.url + "/nothing/here")
        index.failing = 1
        assert not answers(index.url)
        monkeypatch.setattr("matrix.environments.index.builds.ANSWER_TIMEOUT", 0.1)
        index.held = threading.Event()
        assert not answers(index.url)
        index.held.set()
    assert not answers(index.url)

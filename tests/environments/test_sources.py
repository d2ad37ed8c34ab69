"""Whose settings name which index, what a build's name means, and what `auto` takes."""

import os
import threading
from pathlib import Path

import pytest

from tests.wheels import build_wheel, serve
from whichtorch.base.errors import UsageError
from whichtorch.environments.index import sources
from whichtorch.environments.index.sources import (
    BEST_MATCH,
    DEFAULT_INDEX,
    FIRST_INDEX,
    PYTORCH_INDEX,
    PYTORCH_INDEX_VARIABLE,
    Sources,
    answers,
    build_named,
    choose_auto,
    configured_sources,
    local_folder,
    without_credentials,
)
from whichtorch.model import Build


def of(home: Path, **variables: str) -> Sources:
    """Return the sources of a user who has that home and those variables, on a machine without settings."""
    environ = {"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "system"), **variables}
    sources = configured_sources(environ)
    # this machine's own /etc/pip.conf may name certificates
    return Sources(
        index_url=sources.index_url,
        extra_index_urls=sources.extra_index_urls,
        find_links=sources.find_links,
        strategy=sources.strategy,
    )


def write(path: Path, text: str) -> None:
    """Write a settings file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_default(tmp_path: Path) -> None:
    """Without settings the default index is all there is."""
    assert of(tmp_path) == Sources(index_url=DEFAULT_INDEX)


def test_pip_variables_and_files(tmp_path: Path) -> None:
    """Pip's user file goes before its system file, PIP_CONFIG_FILE before both, variables before all."""
    write(tmp_path / "system/pip/pip.conf", "[global]\nindex-url = http://system\nfind-links = /system\n")
    write(
        tmp_path / ".config/pip/pip.conf",
        "[global]\nindex-url = http://user\nextra-index-url =\n  http://a\n  http://b\n",
    )
    assert of(tmp_path) == Sources(
        index_url="http://user", extra_index_urls=("http://a", "http://b"), find_links=("/system",)
    )
    write(tmp_path / "named.conf", "[install]\nindex_url = http://named\n")
    named = of(tmp_path, PIP_CONFIG_FILE=str(tmp_path / "named.conf"))
    assert named.index_url == "http://named"
    assert of(tmp_path, PIP_INDEX_URL="http://variable").index_url == "http://variable"
    assert of(tmp_path, PIP_FIND_LINKS="/x /y").find_links == ("/x", "/y")
    assert of(tmp_path, PIP_CONFIG_FILE=os.devnull) == Sources()


def test_uv_goes_before_pip(tmp_path: Path) -> None:
    """Where uv's settings name something, pip's say nothing, and uv's habit of the first index holds."""
    sources = of(
        tmp_path,
        UV_DEFAULT_INDEX="http://uv",
        UV_INDEX="http://a http://b",
        PIP_INDEX_URL="http://pip",
        PIP_EXTRA_INDEX_URL="http://c",
        PIP_FIND_LINKS="/links",
    )
    assert sources == Sources(
        index_url="http://uv", extra_index_urls=("http://a", "http://b"), find_links=("/links",), strategy=FIRST_INDEX
    )
    assert of(tmp_path, PIP_INDEX_URL="http://pip").strategy == BEST_MATCH
    assert of(tmp_path, UV_INDEX="http://a", UV_INDEX_STRATEGY=BEST_MATCH).strategy == BEST_MATCH


def test_uv_toml(tmp_path: Path) -> None:
    """uv.toml is read in its old and its new form; an explicit index serves only who names it."""
    text = """
        find-links = ["/links"]
        [[index]]
        url = "http://extra"
        [[index]]
        name = "main"
        url = "http://main"
        default = true
        [[index]]
        url = "http://explicit"
        explicit = true
        [pip]
        extra-index-url = ["http://pip-table"]
    """
    write(tmp_path / ".config/uv/uv.toml", text)
    assert of(tmp_path) == Sources(
        index_url="http://main",
        extra_index_urls=("http://extra", "http://pip-table"),
        find_links=("/links",),
        strategy=FIRST_INDEX,
    )
    assert of(tmp_path, UV_NO_CONFIG="1") == Sources()
    write(tmp_path / "other.toml", 'index-url = "http://other"')
    assert of(tmp_path, UV_CONFIG_FILE=str(tmp_path / "other.toml")).index_url == "http://other"


def test_credentials_of_a_named_index(tmp_path: Path) -> None:
    """A named index gets the user and password that uv takes from variables."""
    secrets = {"UV_INDEX_MY_OWN_USERNAME": "me", "UV_INDEX_MY_OWN_PASSWORD": "secret"}
    sources = of(tmp_path, UV_INDEX="my-own=https://host/simple", **secrets)
    assert sources.extra_index_urls == ("https://me:secret@host/simple",)


@pytest.mark.parametrize("broken", ["index-url", "[global]\nindex-url"])
def test_broken_files_are_left_to_their_owners(tmp_path: Path, broken: str) -> None:
    """A file that pip or uv cannot read either changes nothing here."""
    write(tmp_path / ".config/pip/pip.conf", broken)
    write(tmp_path / ".config/uv/uv.toml", broken)
    assert of(tmp_path) == Sources()


def test_no_index(tmp_path: Path) -> None:
    """no-index leaves the folders alone."""
    sources = of(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS="/wheels", PIP_EXTRA_INDEX_URL="http://a")
    assert sources == Sources(index_url=None, find_links=("/wheels",))
    assert sources.places == (("/wheels", False),)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@host:8080/simple?x=1", "https://host:8080/simple?x=1"),
        ("https://token@host/simple", "https://host/simple"),
        ("https://host/simple", "https://host/simple"),
        ("/folder/@home", "/folder/@home"),
    ],
)
def test_without_credentials(url: str, shown: str) -> None:
    """What is shown of a URL holds no user and no password."""
    assert without_credentials(url) == shown


def test_local_folder() -> None:
    """Paths and file: URLs are folders, all else is not."""
    assert local_folder("file:///a%20b/c") == Path("/a b/c")
    assert local_folder("/a/b") == Path("/a/b")
    assert local_folder("https://host/a") is None


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
        ("test-cpu", f"{PYTORCH_INDEX}/test/cpu"),
        ("test-cu130", f"{PYTORCH_INDEX}/test/cu130"),
    ],
)
def test_build_named(name: str, url: str | None) -> None:
    """A build is a folder of the PyTorch index, or the user's own index."""
    build = build_named(name, {}, {})
    assert (build.name, build.index_url) == (name, url)
    assert build.nightly == name.startswith("nightly")
    assert build.candidates == name.startswith("test")


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


def test_auto_with_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a GPU is visible, the index's own wheel is taken, and nobody is asked."""
    monkeypatch.setattr(sources, "find_gpu", lambda: "/dev/nvidia0")
    monkeypatch.setattr(sources, "answers", pytest.fail)
    build, reason = choose_auto(tmp_path)
    assert (build.name, reason) == ("pypi", "a GPU is visible (/dev/nvidia0)")


def test_auto_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU it is cpu where that index answers, else pypi, and the answer is kept."""
    environ = {PYTORCH_INDEX_VARIABLE: "http://me:secret@mirror"}
    monkeypatch.setattr(sources, "find_gpu", lambda: None)
    for number, (answer, name) in enumerate([(True, "cpu"), (False, "pypi")]):
        cache = tmp_path / str(number)
        urls: list[str] = []
        reasons: list[bool] = []

        def ask(url: str, urls: list[str] = urls, answer: bool = answer) -> bool:
            urls.append(url)
            return answer

        monkeypatch.setattr(sources, "answers", ask)
        for _ in range(2):
            build, reason = choose_auto(cache, environ)
            assert build.name == name
            assert "secret" not in reason
            reasons.append("http://mirror/cpu" in reason)
        assert urls == ["http://me:secret@mirror/cpu"]
        assert reasons == [True, answer]  # that it does not answer is told once a day
        os.utime(cache / "auto.json", (0, 0))
        choose_auto(cache, environ)
        assert len(urls) == 2


def test_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index answers if it says anything but that it is out of order, in time."""
    build_wheel(tmp_path, "2.0.0")
    with serve(tmp_path) as index:
        assert answers(index.url)
        assert answers(index.url + "/nothing/here")
        index.failing = 1
        assert not answers(index.url)
        monkeypatch.setattr("whichtorch.environments.index.sources.ANSWER_TIMEOUT", 0.1)
        index.held = threading.Event()
        assert not answers(index.url)
        index.held.set()
    assert not answers(index.url)

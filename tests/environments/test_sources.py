"""Whose settings name which index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from matrix.environments.index.sources import (
    BEST_MATCH,
    DEFAULT_INDEX,
    FIRST_INDEX,
    Sources,
    configured_sources,
    local_folder,
    without_credentials,
)


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
    assert sources.index_urls == ()


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

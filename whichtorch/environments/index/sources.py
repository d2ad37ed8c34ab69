"""Where packages come from: the named builds of torch, and what the user's uv and pip settings name.

The PyTorch index publishes one folder per build. It is named to uv as an index of its own, together with
the exact version that the listing gave: the same for the folders that uv's --torch-backend knows, for
newer folders, for nightlies and for mirrors.

uv ignores pip's configuration and pip ignores uv's, so both are read here, once, and passed to uv explicitly.
The files are small and parsed directly: `pip config list` costs 0.3 s.
"""

from __future__ import annotations

import configparser
import difflib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.base.errors import UsageError
from whichtorch.model import Build
from whichtorch.suite.toml_lines import parsed

PYTORCH_INDEX = "https://download.pytorch.org/whl"
PYTORCH_INDEX_VARIABLE = "WHICHTORCH_PYTORCH_INDEX"  # names a mirror of it, or a test's server
ANSWER_TIMEOUT = 3.0  # seconds the PyTorch index has to answer, DNS included, before `auto` does without
CHOICE_AGE = 86400  # seconds `auto` believes an answer: reruns of a day meet the same environments
GPU_DEVICES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, WSL
GPU_TOOLS = ("nvidia-smi", "rocm-smi")
_FOLDER = re.compile(r"((nightly|test)-)?(cpu|xpu|cu\d{2,3}|rocm\d+(\.\d+){0,2})")
_EXAMPLES = ("auto", "pypi", "cpu", "xpu", "cu118", "cu126", "cu128", "cu130", "rocm6.4", "nightly-cpu", "test-cpu")
PROJECT = "torch"  # searched for in indexes
DEFAULT_INDEX = "https://pypi.org/simple"  # of pip and of uv
BEST_MATCH = "unsafe-best-match"  # pip's way: the best version that any index holds
FIRST_INDEX = "first-index"  # uv's way: only the first index that knows the project


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The indexes and folders that packages are taken from. URLs may hold credentials: see `without_credentials`."""

    index_url: str | None = DEFAULT_INDEX  # None where the user's settings say no-index
    extra_index_urls: tuple[str, ...] = ()  # before index_url where versions tie, as in uv
    find_links: tuple[str, ...] = ()  # folders, file: URLs, or pages of links
    strategy: str = BEST_MATCH  # the --index-strategy of uv that fits the tool whose settings these are
    certificates: str | None = None  # pip's `cert`: a bundle that uv and requests would not know of

    @property
    def places(self) -> tuple[tuple[str, bool], ...]:
        """All indexes in order of precedence, then folders and pages of links; each with whether it is an index."""
        indexes = (*self.extra_index_urls, *filter(None, [self.index_url]))
        return (*((url, True) for url in indexes), *((link, False) for link in self.find_links))

    def of(self, build: Build) -> Sources:
        """Return where torch comes from: what the build names, or all these sources where it names nothing."""
        if build.index_url is None and build.find_links is None:
            return self
        links = tuple(filter(None, [build.find_links]))
        return replace(self, index_url=build.index_url, extra_index_urls=(), find_links=links, strategy="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolSettings(Sources):
    """What the settings of uv or pip name; None, "" and () where they say nothing."""

    index_url: str | None = None
    strategy: str = ""
    no_index: bool = False


def configured_sources(environ: Mapping[str, str] = os.environ) -> Sources:
    """Return what the user's settings name: uv's where they name something, else pip's, else the default."""
    uv, pip = (_tool_settings(tables, environ) for tables in (_uv_tables(environ), [_pip_table(environ)]))
    by_uv = bool(uv.index_url or uv.extra_index_urls)
    indexes = uv if by_uv else pip  # never mixed: uv itself would not know of pip's
    no_index = uv.no_index or (pip.no_index and not by_uv)
    return Sources(
        index_url=None if no_index else indexes.index_url or DEFAULT_INDEX,
        extra_index_urls=() if no_index else indexes.extra_index_urls,
        find_links=uv.find_links or pip.find_links,
        strategy=uv.strategy or (FIRST_INDEX if by_uv else BEST_MATCH),
        certificates=pip.certificates,
    )


def build_named(name: str, custom: Mapping[str, Build], environ: Mapping[str, str] = os.environ) -> Build:
    """Return the build called `name`; those of the matrix file come first. Raises UsageError with near misses."""
    if name in custom:
        return custom[name]
    if name == "pypi":
        return Build(name=name)
    base = environ.get(PYTORCH_INDEX_VARIABLE, PYTORCH_INDEX).rstrip("/")
    if _FOLDER.fullmatch(name):
        url, channel = f"{base}/{name.replace('-', '/')}", name.partition("-")[0]
        return Build(name=name, index_url=url, nightly=channel == "nightly", candidates=channel == "test")
    near = difflib.get_close_matches(name, [*custom, *_EXAMPLES], n=3)
    suggestion = f"did you mean {' or '.join(near)}? " if near else ""
    known = ["auto", "pypi", "cpu", "cuNNN", "rocmN.M", "xpu"]
    known += ["nightly-cpu", "nightly-cuNNN", "test-cpu", "test-cuNNN", *custom]
    raise UsageError(f"no build is called {name!r}", hint=f"{suggestion}known are {', '.join(known)}")


def choose_auto(cache: Path, environ: Mapping[str, str] = os.environ) -> tuple[Build, str]:
    """Return what `auto` means on this machine, and why, in words.

    `cpu` where no GPU is visible and the PyTorch index answers, else `pypi`. The answer of the index is
    kept in the folder `cache` for a day. If it gave none, only the call that asked it returns a reason; later calls
    return "".
    """
    if gpu := find_gpu():
        return build_named("pypi", {}, environ), f"a GPU is visible ({gpu})"
    cpu, file = build_named("cpu", {}, environ), cache / "auto.json"
    assert cpu.index_url is not None
    shown = without_credentials(cpu.index_url)
    kept = read_json(file, dict[str, bool], CHOICE_AGE) or {}
    if was_asked := shown not in kept:
        kept = {shown: answers(cpu.index_url)}
        write_atomic(file, json.dumps(kept))
    if kept[shown]:
        return cpu, f"no GPU is visible, and {shown} answers"
    reason = f"no GPU is visible, but {shown} gave no answer within {ANSWER_TIMEOUT:g} s"
    return build_named("pypi", {}, environ), reason if was_asked else ""


def find_gpu() -> str | None:
    """Return what shows that a GPU is there, None where nothing does."""
    devices = (path for path in GPU_DEVICES if Path(path).exists())
    return next(devices, None) or next(filter(shutil.which, GPU_TOOLS), None)


def answers(url: str) -> bool:
    """Return whether an index answers at all within ANSWER_TIMEOUT, whatever it says."""
    answered = threading.Event()

    def ask() -> None:
        import requests  # here: most commands read no index

        with suppress(requests.RequestException, ValueError):
            if requests.head(f"{url.rstrip('/')}/{PROJECT}/", timeout=ANSWER_TIMEOUT).status_code < 500:
                answered.set()

    # in a thread of its own: a name server that does not answer cannot be given a timeout
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_TIMEOUT)
    return answered.is_set()


def without_credentials(url: str) -> str:
    """Return `url` with user name and password left out, fit to be shown and stored."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def local_folder(url: str) -> Path | None:
    """Return the path that a path or file: URL means; None for anything over a network."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in url else Path(url).expanduser()


def _tool_settings(tables: Iterable[dict[str, Any]], environ: Mapping[str, str]) -> _ToolSettings:
    """Return the settings in tables with uv's keys; earlier tables take precedence."""
    tables = list(tables)
    defaults: list[str] = []
    extra: list[str] = []
    for table in tables:
        for index in table.get("index", []):
            if "url" in index and not index.get("explicit"):
                named = f"{index['name']}={index['url']}" if "name" in index else str(index["url"])
                (defaults if index.get("default") else extra).append(named)
        defaults += filter(None, [table.get("index-url")])
        extra += map(str, table.get("extra-index-url", []))
    return _ToolSettings(
        index_url=_with_secret(defaults[0], environ) if defaults else None,
        extra_index_urls=tuple(dict.fromkeys(_with_secret(url, environ) for url in extra)),
        find_links=tuple(dict.fromkeys(str(link) for table in tables for link in table.get("find-links", []))),
        no_index=any(table.get("no-index") for table in tables),
        strategy=next((table["index-strategy"] for table in tables if table.get("index-strategy")), ""),
        certificates=next((table["cert"] for table in tables if table.get("cert")), None),
    )


def _uv_tables(environ: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield what uv's variables say, then what the user's and the system's uv.toml say."""
    yield {
        "index-url": environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL"),
        "extra-index-url": environ.get("UV_INDEX", "").split() + environ.get("UV_EXTRA_INDEX_URL", "").split(),
        "find-links": environ.get("UV_FIND_LINKS", "").replace(",", " ").split(),
        "no-index": _is_on(environ.get("UV_NO_INDEX")),
        "index-strategy": environ.get("UV_INDEX_STRATEGY"),
    }
    if _is_on(environ.get("UV_NO_CONFIG")):
        return
    if named := environ.get("UV_CONFIG_FILE"):
        files = [Path(named)]
    else:
        system = [Path(folder, "uv", "uv.toml") for folder in _system_folders(environ)]
        files = [_user_folder(environ) / "uv" / "uv.toml", *system, Path("/etc/uv/uv.toml")]
    for file in files:
        try:
            table = parsed(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # missing; or broken, which uv itself reports
            continue
        yield table
        if isinstance(table.get("pip"), dict):
            yield table["pip"]


def _with_secret(index: str, environ: Mapping[str, str]) -> str:
    """Return the URL of uv's "name=url", with the credentials that UV_INDEX_NAME_USERNAME gives it."""
    name, equals, url = index.partition("=")
    if not equals or "://" in name:
        return index
    key = "".join(letter if letter.isalnum() else "_" for letter in name).upper()
    user, password = (environ.get(f"UV_INDEX_{key}_{part}") for part in ("USERNAME", "PASSWORD"))
    parts = urlsplit(url)
    if not (user or password) or "@" in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=f"{user or ''}:{password or ''}@{parts.netloc}"))


def _pip_table(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what pip's files say, later ones overriding earlier ones, and its variables, which override them all."""
    values: dict[str, str] = {}
    for file in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):  # broken, which pip itself reports
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                values.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    for key in ("index-url", "extra-index-url", "find-links", "no-index", "cert"):
        if value := environ.get("PIP_" + key.upper().replace("-", "_")):
            values[key] = value
    values = {key: value.strip() for key, value in values.items()}
    lists = {key: values.get(key, "").split() for key in ("extra-index-url", "find-links")}
    return values | lists | {"no-index": _is_on(values.get("no-index"))}


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip's way of saying: read no file at all
        return []
    files = [Path(folder, "pip", "pip.conf") for folder in reversed(_system_folders(environ))]
    files += [Path("/etc/pip.conf"), _home(environ) / ".pip" / "pip.conf", _user_folder(environ) / "pip" / "pip.conf"]
    if environment := environ.get("VIRTUAL_ENV"):
        files.append(Path(environment, "pip.conf"))
    return [*files, Path(named)] if named else files


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def _user_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config")


def _system_folders(environ: Mapping[str, str]) -> list[str]:
    return (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)


def _is_on(value: str | None) -> bool:
    return (value or "").strip().lower() in {"1", "true", "yes", "on"}

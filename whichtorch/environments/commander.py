"""Run uv and other short-lived tools, supervised: a timeout that kills, an interrupt that works, a log."""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from whichtorch.base.redaction import Redactor
from whichtorch.environments import INSTALL_TIMEOUT
from whichtorch.environments.index.releases import kept_folder
from whichtorch.environments.index.sources import Sources, configured_sources, without_credentials
from whichtorch.environments.provider import COMMAND_MARK, Stage, silent
from whichtorch.model import Build
from whichtorch.process.executor import Executor, LocalExecutor
from whichtorch.process.marks import mark_for
from whichtorch.process.spawning import find_tool
from whichtorch.process.supervision import Ending, Task

REASON_LENGTH = 400  # characters of uv's own explanation that a table can show
LOG_READ = 64 * 2**10  # bytes of the end of a log in which an explanation is looked for
# uv's variables that say how to reach an index, not what to install from it, and that nothing may be built
_KEPT = re.compile(
    r"UV_(HTTP_\w+|REQUEST_TIMEOUT|NATIVE_TLS|SYSTEM_CERTS|INSECURE_HOST|KEYRING_PROVIDER|CONCURRENT_\w+|OFFLINE"
    r"|EXCLUDE_NEWER|NO_BUILD|PYTHON_INSTALL_MIRROR)"
)
_FOREIGN = ("UV_", "PIP_", "PYTHON", "CONDA_", "VIRTUAL_ENV", "WHICHTORCH_")


class InstallError(Exception):
    """An environment cannot be made. `reason` is one line, `log` has the whole story."""

    def __init__(self, reason: str, log: Path | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log


class UnresolvableError(InstallError):
    """No versions of packages satisfy all requirements and constraints."""


class CancelledError(Exception):
    """The user interrupted."""

    def __str__(self) -> str:
        return "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commander:
    """Runs the commands that make environments. It knows where they log, who follows them, and who may stop them."""

    home: Path  # the state folder
    logs: Path  # folder
    timeout: float = INSTALL_TIMEOUT  # seconds, for one command
    cancelled: threading.Event | None = None
    stage: Stage = silent
    cwd: Path | None = None  # None: the state folder
    processes: int = 512  # that a command may have alive at once
    sources: Sources = field(default_factory=configured_sources)
    redactor: Redactor = field(default_factory=Redactor.of_this_machine)  # of the logs
    executor: Executor = field(default_factory=LocalExecutor)

    def run(
        self, argv: tuple[str, ...], *, env: Mapping[str, str], log: Path, what: str, timeout: float | None = None
    ) -> Ending:
        """Run a command to its end with all its output, redacted, in `log`.

        Raises CancelledError on an interrupt, InstallError where it takes too long or cannot be run; the message
        calls the command `what`. The caller judges the exit code.
        """
        if self.cancelled is not None and self.cancelled.is_set():
            raise CancelledError
        log.parent.mkdir(parents=True, exist_ok=True)
        self.stage(self.redactor.text(f"{COMMAND_MARK}{shlex.join(argv)}  log {log}"))
        limit = timeout or self.timeout
        task = Task(
            argv=argv,
            cwd=str(self.cwd or self.home),
            env=dict(env),
            stdout=str(log),
            stderr=str(log),
            timeout=limit,
            processes=self.processes,
            mark=mark_for(self.home, os.urandom(6).hex()),  # the next run finds it, whatever `cwd` is
        )
        try:
            ending = self.executor.run(task, self.cancelled)
        finally:
            self.redactor.file(log)
        if ending is None or ending.stopped_by == "interrupt":
            raise CancelledError
        if ending.problem:
            raise InstallError(f"{what} could not be run: {ending.problem}", log)
        if ending.stopped_by == "timeout":
            raise InstallError(f"{what} took longer than {limit:g} s", log)
        return ending

    def uv(
        self, *arguments: str, log: Path, what: str, build: Build | None = None, variables: Mapping[str, str] = {}
    ) -> None:
        """Run uv with exactly the sources that a build means. Raises InstallError with uv's explanation in one line.

        `variables` are for uv, unless the user has set them.
        """
        env = {**variables, **uv_environ(self.sources, build, self.home, lock_timeout=self.timeout)}
        has_index = self.sources.index_url or (build and build.index_url)
        options = ("--no-index",) if arguments[0] == "pip" and not has_index else ()  # uv has no variable for it
        ending = self.run((uv_path(), *arguments, *options), env=env, log=log, what=what)
        if ending.exit_code != 0:
            raise InstallError(f"{what} failed: {log_summary(log, ending)}", log)


def uv_path() -> str:
    """Return where uv is: the wheel that whichtorch depends on, else beside the interpreter or on PATH."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        if (path := find_tool("uv")) is None:
            raise InstallError(f"uv is neither beside {sys.executable} nor on PATH") from None
        return path


def uv_environ(
    sources: Sources, build: Build | None, home: Path, *, lock_timeout: float, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the whole environment that uv runs with: of the user's settings only `sources` are in it.

    Indexes are passed in variables, not arguments, because their URLs may hold credentials.
    """
    build = build or Build(name="none")
    kept = kept_folder(home, build)
    env = {name: value for name, value in environ.items() if _KEPT.fullmatch(name) or not name.startswith(_FOREIGN)}
    own_index = (build.index_url,) if build.index_url else ()
    own_links = [build.find_links] if build.find_links else []
    own_links += [str(kept)] if kept is not None and kept.is_dir() else []  # whatever their index still has
    env |= {
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(home / "cache" / "uv"),
        # shared files can be counted, and freed, exactly
        "UV_LINK_MODE": "hardlink",
        # parallel installs wait for each other instead of failing
        "UV_LOCK_TIMEOUT": str(int(lock_timeout)),
        "UV_PYTHON_INSTALL_DIR": str(home / "pythons"),
        "UV_PYTHON_DOWNLOADS": "manual",  # only by `uv python install`
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
        "UV_INDEX": " ".join([*own_index, *sources.extra_index_urls]),
        "UV_FIND_LINKS": ",".join([*own_links, *sources.find_links]),
        # with an index of its own, a build takes torch from there and the rest from wherever it is newest
        "UV_INDEX_STRATEGY": "unsafe-best-match" if own_index else sources.strategy,
    }
    if sources.index_url:
        env["UV_DEFAULT_INDEX"] = sources.index_url
    if sources.certificates:
        env.setdefault("SSL_CERT_FILE", sources.certificates)
    return {name: value for name, value in env.items() if value or not name.startswith("UV_")}


def log_summary(log: Path, ending: Ending | None = None) -> str:
    """Return what a log ends with in one line: uv's explanation, without its ornaments."""
    text = ""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_READ))
        text = file.read().decode(errors="replace")
    lines = [re.sub(r"^[\s×╰─▶│├•|]+", "", line).strip() for line in text.splitlines()]  # noqa: RUF001
    start = next((index for index, line in enumerate(lines) if line.startswith(("error", "No solution"))), None)
    kept = lines[start:] if start is not None else lines[-5:]
    kept = [line for line in kept if line and not line.startswith("hint:")]
    if "[stderr]" in kept:  # of a build, whose last line tells most
        kept = [f"{kept[0]}:", kept[-1]]
    words = " ".join(re.sub(r"^(error|cause): ", "", line) for line in kept)
    if premises := re.findall(r"[Bb]ecause (?:we know from \(\d+\) that )?(.*?), we can conclude that", words):
        words = ", and ".join(premises)  # what uv concludes from these is that it cannot be done
    words = re.sub(r"\w+://\S+", lambda url: without_credentials(url[0]), words)
    if len(words) > REASON_LENGTH:
        words = words[: REASON_LENGTH - 1] + "…"
    if words:
        return words.rstrip(".")
    if ending is not None and ending.signal:
        return f"it was ended by {ending.signal}"
    return f"exit code {ending.exit_code}" if ending is not None else "no explanation"

# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "nox>=2025.5",
#     "uv>=0.8",
#     # what it takes to list the environments of the matrix file as sessions
#     "filelock>=3.24", "findpython>=0.9", "packaging>=26.1", "psutil>=6", "pydantic>=2.12", "pypi-simple>=1.6",
# ]
# ///
"""Thin sessions: install the tool, call one of its commands."""

from __future__ import annotations

import itertools
import logging
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests", "lint"]

for chatty in ("urllib3", "charset_normalizer"):  # nox shows what every library logs
    logging.getLogger(chatty).setLevel(logging.WARNING)

ROOT = Path(__file__).parent
HOME = os.environ.get("WHICHTORCH_HOME") or str(ROOT / ".whichtorch")
PROJECT = nox.project.load_toml("pyproject.toml")
# most tests wait for processes, so more of them run at once than there are cores; some keep to one worker
PARALLEL = ("-n", "6", "--dist", "loadgroup", "--maxschedchunk", "1")
MEMORY = Path("/dev/shm")  # noqa: S108  where Linux keeps files in memory


def whichtorch(session: nox.Session, command: str, *arguments: str) -> None:
    """Install the tool and call a command; its exit code becomes nox's."""
    is_cluster = command in {"scheduler", "worker"} or any(
        each.startswith("--executor") for each in itertools.takewhile("--".__ne__, arguments)
    )
    measures = any(each.startswith("--measure") for each in itertools.takewhile("--".__ne__, arguments))
    extras = ",".join(["cluster"] * is_cluster + ["measure"] * measures)
    session.install("--quiet", "-e", f".[{extras}]" if extras else ".")
    try:
        session.run(
            "whichtorch",
            command,
            *arguments,
            env={"WHICHTORCH_COMMAND": f"nox -s {command} --", "WHICHTORCH_HOME": HOME},
            # the tool stops its processes and keeps its records by itself: do not kill it half-way
            interrupt_timeout=None,
            terminate_timeout=None,
        )
    except CommandFailed as failure:
        code = re.search(r"code (-?\d+)", failure.reason or "")
        sys.exit(int(code[1]) if code else 1)


_COMMANDS = {
    "matrix": "Run scenarios over torch versions, builds and configurations: `nox -s matrix -- --help`.",
    "plan": "List the environments, and share them out among the jobs of a CI service: `nox -s plan -- --shares 4`.",
    "bisect": "Find the version, day, package or commit that changed a test: `nox -s bisect -- SCENARIO | SCRIPT`.",
    "fix": "Find the smallest change of a bad release's Python that cures a test: `nox -s fix -- SCRIPT|SCENARIO`.",
    "triage": "Make a case of a failing script, for a maintainer: `nox -s triage -- SCRIPT | SCENARIO`.",
    "replay": "Run a case from elsewhere, and say whether it reproduces here: `nox -s replay -- CASE.ZIP`.",
    "answer": "Say whether a bug report is true, in which releases and since when: `nox -s answer -- report.md`.",
    "explain": "Say why a test fails in some environments and not in others: `nox -s explain -- SCENARIO`.",
    "report": "Make the page, Markdown, JUnit and JSON of a stored run, in output/: `nox -s report -- [RUN]`.",
    "compare": "Compare two stored runs cell by cell: `nox -s compare -- OLD NEW`.",
    "merge": "Make one run of those made on several machines: `nox -s merge -- DIR...`.",
    "history": "Tell what became of a test night after night: `nox -s history -- SCENARIO`.",
    "runs": "List, name and remove stored runs: `nox -s runs -- [name RUN NAME | prune --keep N]`.",
    "run": "Run a command here, and say where it hangs: `nox -s run -- -- pytest tests`.",
    "stacks": "Say where a running process is stuck, and who waits for whom: `nox -s stacks -- PID`.",
    "dispatch": "Compare by which kernels environments dispatch an operator: `nox -s dispatch -- OPERATOR ENV [ENV]`.",
    "scheduler": "Let the workers and users of a cluster find each other: `nox -s scheduler -- --tls DIR`.",
    "worker": "Run cells for the users of a cluster: `nox -s worker -- tls://HEAD:8786 --tls DIR`.",
    "doctor": "Check tools and permissions, then that every control scenario gets its own outcome.",
}


for _command, _summary in _COMMANDS.items():

    def _call(session: nox.Session, command: str = _command) -> None:
        whichtorch(session, command, *session.posargs)

    _call.__doc__ = _summary
    nox.session(name=_command)(_call)


def _environments() -> list[object]:
    """Return the environments of the default matrix file, for `nox -l` and `nox -s "env(...)"`.

    They need the index, so sessions chosen by another name do not wait for them.
    """
    chosen = [word for before, word in zip(sys.argv, sys.argv[1:], strict=False) if before in {"-s", "--session", "-e"}]
    if chosen and not any(word.startswith("env") for word in chosen):
        return []
    sys.path.insert(0, str(ROOT))
    try:
        from whichtorch.base.errors import WhichtorchError
        from whichtorch.environments.expansion import expand
        from whichtorch.environments.matrix_file import DEFAULT_FILE, read_matrix_file
    except ImportError as error:
        print(f"no environments listed: {error} (run nox with its script mode on)", file=sys.stderr)
        return []
    try:
        expansion = expand(read_matrix_file(DEFAULT_FILE), cache=Path(HOME) / "cache")
    except WhichtorchError as error:
        print(f"no environments listed: {error}", file=sys.stderr)
        return []
    return [nox.param(request.options, id=request.label) for request in expansion.requests]


if _PARAMETERS := _environments():

    @nox.session
    @nox.parametrize("options", _PARAMETERS)
    def env(session: nox.Session, options: tuple[str, ...]) -> None:
        """Run the suite in one environment of the matrix file."""
        whichtorch(session, "matrix", *options, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; with `-- -m torch` those that install real torch wheels."""
    session.install("--quiet", "-e", ".", *nox.project.dependency_groups(PROJECT, "test"))
    if not any(ROOT.glob("tests/__pycache__/conftest.*-pytest-*.pyc")):  # else each worker compiles every test at once
        session.run("pytest", "--collect-only", "-qq", silent=True, env={"PYTHONDONTWRITEBYTECODE": None})
    arguments = session.posargs or PARALLEL
    folder = os.environ.get("TMPDIR")
    if not folder and "-n" in arguments and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 8e9:
        folder = str(MEMORY)  # tests that run side by side make and remove files by the ten thousand
    with tempfile.TemporaryDirectory(dir=folder) as folder:
        session.run("pytest", *arguments, env={"TMPDIR": folder})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, and the form and safety of workflows and of the action."""
    session.install("--quiet", "-e", ".", *nox.project.dependency_groups(PROJECT, "test", "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    nightly, action, example = ".github/workflows/nightly.yml", "action.yml", "docs/examples/github.yml"
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", nightly, example)
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-actions", action)
    session.run("zizmor", "--offline", "--quiet", nightly, action, example)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site in site/; a link that leads nowhere fails it."""
    session.install("--quiet", *nox.project.dependency_groups(PROJECT, "docs"))
    session.run("zensical", "build", "--clean", "--strict")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what is promised in seconds and in certainty; `-- --help` says more."""
    session.install("--quiet", "-e", ".", *nox.project.dependency_groups(PROJECT, "test"))
    session.run("python", "-m", "bench", *session.posargs)

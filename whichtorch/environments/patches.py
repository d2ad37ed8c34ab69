"""Patches of torch's Python files: read, checked for what no patch of an installation can do, applied to a release.

`git apply` reads them, so that a PR's .diff or .patch, `git diff` and `diff -u` all do. A part of a patch is either in
Python, or for a compiler, or in what no wheel carries, such as tests. No part is ever applied without the others: what
is for a compiler is refused, and one hunk that does not fit keeps the environment from being made.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.environments.commander import InstallError
from whichtorch.environments.overlay import encoded, read_source
from whichtorch.model import NO_PATCH, Patch
from whichtorch.process.marks import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PACKAGES = {"torch", "torchgen", "functorch", "caffe2"}  # that wheels of torch install
GIT_PATIENCE = 60.0  # seconds: a patch of 500 files takes one
NAMED = 3  # files or hunks in a message; more are counted
_COMPILED_FOLDERS = re.compile(
    r"(aten|c10|cmake|third_party|tools/(autograd|setup_helpers)|(torch|functorch)/csrc|torch/lib)/|setup\.py$"
)
_COMPILED_FILES = re.compile(
    r".*(\.(c|cc|cpp|cxx|cu|cuh|h|hpp|hip|asm|S|m|mm|metal|pyx|cmake|bzl|bazel)|CMakeLists\.txt)$"
)
_NOT_CARRIED = re.compile(r"(\.|android/|benchmarks/|docs/|ios/|scripts/|test/)|.*\.(md|rst)$")
_PYTHON = (".py", ".pyi")
_HEADER = re.compile(r"^--- (?P<old>[^\t\n]+).*\n\+\+\+ (?P<new>[^\t\n]+).*\n@@ ", re.MULTILINE)


class PatchParts(NamedTuple):
    """The files that a patch changes, by what can be done about them, with as many folders stripped as git is to."""

    strip: int
    carried: tuple[str, ...]  # in packages of the wheel
    created: frozenset[str]
    compiled: tuple[str, ...]
    left_out: tuple[str, ...]


class PatchedFiles(NamedTuple):
    """What a patch or another commit makes of an installation."""

    files: Mapping[str, str | None]  # texts by names in site-packages; None for what is removed
    note: str  # on what was done and what was left out, in one line


def read_patch(file: Path, name: str = "", option: str = "") -> Patch:
    """Return the patch in a file, called like it unless a name is given.

    Raises UsageError where it cannot be read, needs a compiler, or changes nothing that a wheel carries.
    """
    try:
        text = read_source(file)
    except OSError as error:
        hint = f"--patch takes a file with a unified diff, a name of the matrix file, or {NO_PATCH}"
        raise UsageError(f"cannot read the patch {file}: {error.strerror}", hint=hint) from None
    name = name or re.sub(r"[^\w.-]+", "-", file.stem)
    if name == NO_PATCH:
        raise UsageError(f"{file}: no patch can be called {NO_PATCH!r}", hint="that is the release as it is")
    try:
        parts = parts_of(text)
    except ValueError as error:
        hint = "write it with `git diff`, or take the .diff of a pull request"
        raise UsageError(f"{file} is no patch: {error}", hint=hint) from None
    if parts.compiled:
        hint = "try it without these, if the rest makes sense alone; whichtorch bisect --git builds commits"
        raise UsageError(f"{file} changes what needs a compiler: {listed(parts.compiled)}", hint=hint)
    if not parts.carried:
        raise UsageError(f"{file} changes nothing that wheels of torch carry, only {listed(parts.left_out)}")
    return Patch(name=name, text=text, option=option or str(file))


_LINK = re.compile(r"^(?:(?:new|new file|old|deleted file) mode|index \w+\.\.\w+) 1[26]0000\b", re.MULTILINE)


def parts_of(text: str) -> PatchParts:
    """Return which files a patch changes. Raises ValueError where it is none, or leads out of the packages."""
    strip = _strip(text)
    with temporary_folder() as folder:
        read = _git_apply(folder, text, strip, "--numstat", "--summary")
    if read.returncode:
        raise ValueError(_git_words(read.stderr))
    if _LINK.search(text):
        raise ValueError("it makes or changes a link, which may lead anywhere")
    names = re.findall(r"^(?:\d+|-)\t(?:\d+|-)\t(.+)$", read.stdout, re.MULTILINE)
    names += re.findall(r"^rename from (.+)$", text, re.MULTILINE)
    created = re.findall(r"^ create (?:mode \d+ )?(.+)$", read.stdout, re.MULTILINE)
    if outside := [name for name in names if name.startswith("/") or ".." in PurePosixPath(name).parts]:
        raise ValueError(f"it names files outside: {listed(outside)}")
    sorts = {
        sort: tuple(name for name in dict.fromkeys(names) if sort_of(name) == sort)
        for sort in ("carried", "compiled", "left_out")
    }
    return PatchParts(strip=strip, created=frozenset(created), **sorts)


def sort_of(name: str) -> str:
    """Return which field of PatchParts a file belongs to."""
    if _NOT_CARRIED.match(name):
        return "left_out"
    if _COMPILED_FOLDERS.match(name) or _COMPILED_FILES.match(name):
        return "compiled"
    return "carried" if PurePosixPath(name).parts[0] in PACKAGES else "left_out"


def _strip(text: str) -> int:
    """Return how many folders stand before the packages: one for a/ and b/, or those of two environments compared."""
    headers = [{match["old"].strip('"'), match["new"].strip('"')} - {"/dev/null"} for match in _HEADER.finditer(text)]
    paths = [PurePosixPath(path).parts for names in headers for path in names]
    if not paths or all(len(parts) > 1 and len(parts[0]) == 1 and parts[0].isalpha() for parts in paths):
        return 1
    depths = (next((depth for depth, part in enumerate(parts) if part in PACKAGES), None) for parts in paths)
    return min((depth for depth in depths if depth is not None), default=0)


def apply_patch(patch: Patch, site: Path) -> PatchedFiles:
    """Return what a patch makes of the files in an installation's site-packages, without changing any.

    Raises InstallError with the files and hunks that do not fit. Where all of it is there already, nothing changes.
    """
    parts = parts_of(patch.text)
    # data that the release does not carry, such as a stub's template, is as good as a test
    carried = [
        name for name in parts.carried if name.endswith(_PYTHON) or name in parts.created or (site / name).exists()
    ]
    left_out = [*parts.left_out, *(name for name in parts.carried if name not in carried)]
    note = f"; left out, since wheels do not carry it: {listed(left_out)}" if left_out else ""
    only = [f"--include={glob.escape(name)}" for name in carried]
    with temporary_folder() as scratch:
        for name in carried:
            if (site / name).is_file():
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).write_bytes((site / name).read_bytes())
        if _git_apply(scratch, patch.text, parts.strip, *only).returncode:  # then it has changed nothing
            if not _git_apply(scratch, patch.text, parts.strip, *only, "--check", "--reverse").returncode:
                return PatchedFiles({}, f"patch {patch.name} is in this release already: nothing is changed{note}")
            rejected = _git_apply(scratch, patch.text, parts.strip, *only, "--reject")
            what = listed(_rejected_hunks(scratch, rejected.stderr)) or _git_words(rejected.stderr)
            raise InstallError(
                f"patch {patch.name} does not apply: {what}; make it for this release, or leave the release out"
            )
        files = {name: read_source(scratch / name) if (scratch / name).exists() else None for name in carried}
    number = "a file" if len(files) == 1 else f"{len(files)} files"
    return PatchedFiles(files, f"patch {patch.name} changes {number}{note}")


def _rejected_hunks(scratch: Path, errors: str) -> Iterator[str]:
    """Yield the files and hunks that git has rejected."""
    for file in sorted(scratch.rglob("*.rej")):
        hunks = re.findall(r"^@@ .*$", file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        yield from (f"{file.relative_to(scratch).with_suffix('')} at {hunk.strip()}" for hunk in hunks)
    for words, cause in (("there is no {}", "No such file"), ("{} is there already", "already exists")):
        yield from map(words.format, re.findall(rf"^error: (.+): {cause}", errors, re.MULTILINE))


def _git_apply(folder: Path, text: str, strip: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `git apply` in a folder, as if no repository were around it and the user had no settings of git."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent), "LC_ALL": "C"}
    environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    argv = ["git", "-c", "core.quotePath=false", "apply", f"-p{strip}", *options, "-"]
    try:
        done = subprocess.run(
            argv, cwd=folder, env=environ, input=encoded(text), capture_output=True, timeout=GIT_PATIENCE, check=False
        )
    except FileNotFoundError:
        raise PreventedError("there is no git, which applies patches", hint="install git") from None
    except subprocess.TimeoutExpired:
        raise PreventedError(f"`git apply` took longer than {GIT_PATIENCE:g} s") from None
    outputs = (output.decode(errors="replace") for output in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(argv, done.returncode, *outputs)


def _git_words(errors: str) -> str:
    lines = [line.partition(": ")[2] for line in errors.splitlines() if line.startswith(("error: ", "fatal: "))]
    return re.sub(r" \(allow with .*\)", "", lines[0]) if lines else "git cannot read it"


def listed(names: Iterable[str]) -> str:
    """Return the first few of some names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")

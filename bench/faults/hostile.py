"""Files from others, made to harm: nothing is read or written outside, and what is told stays text."""

import json
import os
import pickle
import shutil
import stat
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import junitparser

from bench.faults.fault import Fault, Moment
from bench.faults.ground import SMALL, BrokenError, Fields, Ground

PRIVATE = "of this machine only"
EVIL = "\x1b]0;owned\x07\x1b[31m\u202e</script><script>alert(1)</script><img src=x onerror=alert(1)>]]>&\x00\ud800|`@a"
NAMES = ("../../escaped", "/tmp/whichtorch-escaped", "a/../../../escaped", "..\\escaped")
CASES = ("case.json", "script.py")


class Pickled:
    """Runs a command where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.file),)


def _watch(ground: Ground) -> tuple[Path, set[Path]]:
    """Make a file that nobody may read; return it, and what is there outside of the state folder."""
    secret = ground.user.folder.parent / "secret.txt"
    secret.write_text(PRIVATE)
    return secret, _outside(ground)


def _outside(ground: Ground) -> set[Path]:
    own = ground.user.folder.parent
    paths = {path for path in own.rglob("*") if not path.is_relative_to(ground.state)}
    return {path for path in paths if "output" not in path.name and "output" not in path.parent.name}


def _check(ground: Ground, before: set[Path], *codes: int, words: tuple[str, ...]) -> str:
    """Give a command; check how it ends, that nothing new lies outside, and return what it said and wrote."""
    ended = ground.give(words)
    ground.check_line(ended, *codes)
    new = _outside(ground) - before
    if made := {path for path in new if "escaped" in path.name or "pickled" in path.name}:
        raise BrokenError(f"{words[0]} wrote {made}")
    if Path("/tmp/whichtorch-escaped").exists():
        raise BrokenError(f"{words[0]} wrote an absolute path")
    written = [path for path in (ground.user.folder / "output").rglob("*") if path.is_file()]
    told = ended.output + "".join(path.read_text(errors="replace") for path in written if path.suffix != ".zip")
    if PRIVATE in told:
        raise BrokenError(f"{words[0]} tells what is on this machine: {ended.output[-500:]}")
    if set("\x1b\x07\u202e\x00") & set(ended.output):
        raise BrokenError(f"{words[0]} controls the terminal: {ended.output[-500:]!r}")
    return told


def archive(fill: Callable[[zipfile.ZipFile, Path], None], fields: Fields, ground: Ground, moment: Moment) -> None:
    """Replay a case that was made to harm."""
    secret, _ = _watch(ground)
    file = ground.user.folder / "case.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        fill(made, secret)
    before = _outside(ground)
    _check(ground, before, 2, words=("replay", "case.zip"))
    ground.check_left()


def real_case(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Replay a true case, to which members with names that lead outside, and links, were added."""
    ground.give(("triage", "fails.py", "--torch", "9.1.0", "--until", "reproduce"))
    secret, _ = _watch(ground)
    file = ground.user.folder / "case.zip"
    shutil.copy(ground.user.folder / "output" / "cases" / "fails" / "case.zip", file)
    with zipfile.ZipFile(file, "a") as made:
        for name in NAMES:
            made.writestr(name, "it got out")
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(link, str(secret))
        made.writestr("torch.py", pickle.dumps(Pickled(ground.user.folder.parent / "pickled")))
    shutil.rmtree(ground.user.folder / "output")
    before = _outside(ground)
    _check(ground, before, 0, 1, 3, 4, words=("replay", "case.zip"))
    ground.check_left()


def _no_case(made: zipfile.ZipFile, secret: Path) -> None:
    for name in NAMES:
        made.writestr(name, "it got out")


def _bomb(made: zipfile.ZipFile, secret: Path) -> None:
    made.writestr("case.json", "{}")
    with made.open("zeros", "w", force_zip64=True) as file:
        for _ in range(300):
            file.write(bytes(1_000_000))


def _deep(made: zipfile.ZipFile, secret: Path) -> None:
    made.writestr("case.json", "[" * 500_000)


def _evil_words(made: zipfile.ZipFile, secret: Path) -> None:
    made.writestr("case.json", json.dumps({EVIL: EVIL, "schema": EVIL}))


def _pickle(made: zipfile.ZipFile, secret: Path) -> None:
    made.writestr("case.json", pickle.dumps(Pickled(secret.with_name("pickled"))))


def run_folder(change: Callable[[Path, Path], None], fields: Fields, ground: Ground, moment: Moment) -> None:
    """Report, merge, compare and prune a run folder that was made to harm."""
    ground.give(SMALL.words)
    secret, _ = _watch(ground)
    (run,) = (ground.state / "runs").iterdir()
    there = ground.user.folder / "downloads" / "state" / "runs" / run.name
    shutil.copytree(run, there)
    shutil.rmtree(ground.state / "runs")
    change(there, secret)
    before = _outside(ground)
    _check(ground, before, words=("report", str(there)))
    page = ground.user.folder / "output" / "index.html"
    if page.exists() and "<script>alert(1)" in page.read_text():
        raise BrokenError("a name is markup in the page")
    if (ground.user.folder / "output" / "junit.xml").exists():
        junitparser.JUnitXml.fromfile(str(ground.user.folder / "output" / "junit.xml"))
    _check(ground, before, words=("compare", str(there), str(there)))
    _check(ground, before, words=("merge", str(there.parent)))
    merged = [path for path in (ground.state / "runs").rglob("*") if path.is_file()]
    if any(PRIVATE in path.read_text(errors="replace") for path in merged):
        raise BrokenError("merge takes along what is on this machine")
    _check(ground, before, words=("report",))
    _check(ground, before, words=("runs",))
    _check(ground, before, 0, words=("runs", "prune", "--keep", "0"))
    if not secret.exists():
        raise BrokenError("prune removes what is outside")


def _paths(path: str, run: Path, secret: Path) -> None:
    for file in run.glob("*.jsonl"):
        text = file.read_text().replace(f"runs/{run.name}/attempts/00001", path.format(secret=secret.parent))
        file.write_text(text.replace("/stderr.txt", "/secret.txt").replace("/stdout.txt", "/secret.txt"))


def _links(run: Path, secret: Path) -> None:
    for name in ("stdout.txt", "stderr.txt"):
        for file in run.glob(f"attempts/*/{name}"):
            file.unlink()
            file.symlink_to(secret)
    for folder in run.glob("attempts/*"):
        (folder / "all").symlink_to(secret.parent)
        os.mkfifo(folder / "pipe")


def _pipes(run: Path, secret: Path) -> None:
    for file in run.glob("attempts/*/std*.txt"):
        file.unlink()
        os.mkfifo(file)


def _words(run: Path, secret: Path) -> None:
    evil = json.dumps(EVIL)[1:-1]
    for file in run.glob("*.jsonl"):
        text = file.read_text().replace("fails.py", evil).replace("as it was", evil).replace("torch-9.1.0-pypi", evil)
        file.write_text(text)
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace('"name": ""', f'"name": "{evil}"').replace("--torch", evil))


def _identity(run: Path, secret: Path) -> None:
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace(run.name, "../../../escaped"))


def _numbers(run: Path, secret: Path) -> None:
    for file in run.glob("*.jsonl"):
        text = file.read_text()
        for name in ("seconds", "exit_code", "place", "limit"):
            text = text.replace(f'"{name}":1', f'"{name}":1' + "0" * 300)
        file.write_text(text)


def patch(text: str, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Try a patch that was made to harm."""
    secret, _ = _watch(ground)
    (ground.user.folder / "evil.diff").write_text(text.format(secret=secret))
    before = _outside(ground)
    words = ("matrix", "--torch", "9.1.0", "--patch", "evil.diff", "passes.py")
    told = _check(ground, before, 1, 2, 3, words=words)
    if secret.read_text() != PRIVATE or "pass  " in told.partition("Everywhere")[2]:
        raise BrokenError(f"it is applied: {told[-500:]}")


def matrix_file(content: bytes, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Read a matrix file that was made to harm."""
    _watch(ground)
    (ground.user.folder / "evil.toml").write_bytes(content)
    before = _outside(ground)
    words = ("matrix", "--matrix", "evil.toml", "passes.py")
    _check(ground, before, 2, 3, words=words)


def _diff(old: str, new: str) -> str:
    return f"--- {old}\n+++ {new}\n@@ -0,0 +1 @@\n+it got out\n"


LINK = (
    "diff --git a/torch/link.py b/torch/link.py\nnew file mode 120000\n--- /dev/null\n+++ b/torch/link.py\n"
    "@@ -0,0 +1 @@\n+{secret}\n\\ No newline at end of file\n"
)
TOML = b'[axes]\ntorch = ["9.2.0"]\n'
FAULTS = [
    *(
        Fault("hostile", f"a case {name}", partial(archive, fill))
        for name, fill in (
            ("with members that lead outside", _no_case),
            ("that is a bomb", _bomb),
            ("nested 500,000 deep", _deep),
            ("with escapes for names", _evil_words),
            ("that is a pickle", _pickle),
        )
    ),
    Fault("hostile", "a true case with more members, links and a pickle", real_case),
    *(
        Fault("hostile", f"a run folder {name}", partial(run_folder, change))
        for name, change in (
            ("whose attempts lie above it", partial(_paths, "../../..")),
            ("whose attempts lie elsewhere", partial(_paths, "{secret}")),
            ("whose attempts lead up within it", partial(_paths, "runs/x/../../../..")),
            ("with links for outputs", _links),
            ("with pipes for outputs", _pipes),
            ("with markup and escapes for names", _words),
            ("whose id leads outside", _identity),
            ("with huge numbers", _numbers),
        )
    ),
    *(
        Fault("hostile", f"a patch {name}", partial(patch, text))
        for name, text in (
            ("that leads outside", _diff("a/../../../escaped", "b/../../../escaped")),
            ("of an absolute path", _diff("/dev/null", "/tmp/whichtorch-escaped")),
            ("that makes a link", LINK),
            ("that is no patch", "\x00" * 1000),
        )
    ),
    *(
        Fault("hostile", f"a matrix file {name}", partial(matrix_file, content))
        for name, content in (
            ("that is no text", b"\xff\xfe\x00" * 100),
            ("nested deep", b"a = " + b"[" * 100_000),
            ("with escapes for names", TOML + b'[build."\\u001b]0;owned\\u0007\\u202e"]\nindex-url = 3\n'),
            ("with a build that leads outside", TOML + b'build = ["../../escaped"]\n[build."../../escaped"]\nx = 1\n'),
            ("with endless numbers", b"[axes]\ntorch = [" + b"9" * 100_000 + b"]\n"),
        )
    ),
]

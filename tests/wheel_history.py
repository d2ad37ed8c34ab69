"""A history that might have led from one installed release of torch to the next, drawn at random.

Its commits are parts of what really differs: files that a script does not read, in an order of their own; files that it
reads, with a comment; commits that need native code which no wheel has, and are mended; the fix, which may be taken
back and landed again; and a commit of all that hangs together, which needs the newer wheel. Some come with a merge.
"""

from __future__ import annotations

import csv
import random
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("torch", "torchgen", "functorch")
Tree = dict[str, bytes]


def tree_of(site: Path) -> Tree:
    """Return the Python files that a wheel of torch has brought, but for the one that its build writes."""
    with next(site.glob("torch-*.dist-info/RECORD")).open(encoding="utf-8", newline="") as record:
        names = [row[0] for row in csv.reader(record) if row]
    ours = [name for name in names if name.endswith(".py") and name.partition("/")[0] in PACKAGES]
    return {name: (site / name).read_bytes() for name in ours if name != "torch/version.py"}


@dataclass
class WheelHistory:
    """A repository that is made of two trees; `fix` is a file of the old one that cures a script, by its path."""

    folder: Path
    old: Tree
    new: Tree
    fix: tuple[str, bytes]
    read: tuple[str, ...]  # files that the script reads
    seed: int
    fixes: list[str] = field(default_factory=list)  # commits that fix it, in order
    _stream: list[bytes] = field(default_factory=list)
    _marks: int = 0

    def make(self, *, is_reverted: bool, commits: int = 150) -> None:
        """Write the history."""
        rnd, (path, cured) = random.Random(self.seed), self.fix
        read = [name for name in self.read if name in self.old and name in self.new and name != path]
        unread = sorted(
            name for name in {*self.old, *self.new} - {*read, path} if self.old.get(name) != self.new.get(name)
        )
        size = max(1, len(unread) // commits)
        steps: list[tuple[str, list[str]]] = [("unread", unread[at : at + size]) for at in range(0, len(unread), size)]
        steps = [*steps, *(("read", [rnd.choice(read)]) for _ in range(18))]
        steps += [("broken", [rnd.choice(read)]) for _ in range(3)]
        rnd.shuffle(steps)
        places = sorted(rnd.sample(range(5, len(steps) - 20), 3 if is_reverted else 1))
        for place, kind in reversed(list(zip(places, ("fix", "revert", "fix"), strict=False))):
            steps.insert(place, (kind, [path]))
        steps.insert(rnd.randrange(len(steps) - 10, len(steps)), ("together", []))
        state = dict(self.old)
        tip = self._commit("main", state, {}, "Begin")
        self._tag("v2.11.0", self._commit("release-old", state | {"release.md": b"old"}, state, "Release", tip))
        marks: dict[int, str] = {}
        for number, (kind, names) in enumerate(steps):
            before, subject = dict(state), f"Change {number} of {kind}"
            for name in names if kind == "unread" else ():
                _take(state, name, self.new)
            if kind in {"read", "broken"}:
                added = f"# touched {number}\n" if kind == "read" else f"import torch; torch._C._no_such_{number}\n"
                state[names[0]] = state[names[0]] + b"\n" + added.encode()
            if kind == "together":
                for name in {*self.old, *self.new} - set(unread):
                    _take(state, name, self.new)
            if kind in {"fix", "revert"}:
                state[path] = cured if kind == "fix" else self.old[path]
                title = "Keep the device of FakeTensor.add_"
                subject = f'Revert "{title} (#177524)"' if kind == "revert" else f"{title} (#177524)"
            if rnd.random() < 0.15:
                side = self._commit(f"side{number}", state, before, subject, tip)
                tip = self._commit("main", state, before, f"Merge {number}", tip, side)
            else:
                side = tip = self._commit("main", state, before, subject, tip)
            marks |= {side: kind} if kind == "fix" else {}
            if kind == "broken":
                mended = state | {names[0]: before[names[0]]}
                tip = self._commit("main", mended, state, f"Mend {number}", tip)
                state = mended
        end = self.new
        self._tag("v2.12.1", self._commit("release-new", end, state, "Release", tip))
        self.folder.mkdir(parents=True)
        for asked in (["init", "-q", "-b", "main"], ["fast-import", "--quiet", f"--export-marks={self.folder}/marks"]):
            subprocess.run(["git", *asked], cwd=self.folder, input=b"".join(self._stream), check=True)
        hashes = dict(line.split() for line in (self.folder / "marks").read_text().splitlines())
        self.fixes = [hashes[f":{mark}"] for mark in marks]

    def _commit(self, branch: str, state: Tree, before: Tree, subject: str, *parents: int) -> int:
        blobs = [(name, self._blob(text)) for name, text in state.items() if before.get(name) != text]
        self._marks += 1
        head = f"commit refs/heads/{branch}\nmark :{self._marks}\n"
        head += f"committer A <a@b> {1_700_000_000 + 60 * self._marks} +0000\ndata {len(subject)}\n{subject}\n"
        head += "".join(f"{word} :{parent}\n" for word, parent in zip(("from", "merge"), parents, strict=False))
        head += "".join(f"M 100644 :{mark} {name}\n" for name, mark in blobs)
        head += "".join(f"D {name}\n" for name in before if name not in state)
        self._stream.append(head.encode() + b"\n")
        return self._marks

    def _blob(self, text: bytes) -> int:
        self._marks += 1
        self._stream.append(b"blob\nmark :%d\ndata %d\n%s\n" % (self._marks, len(text), text))
        return self._marks

    def _tag(self, name: str, mark: int) -> None:
        self._stream.append(f"reset refs/tags/{name}\nfrom :{mark}\n\n".encode())


def _take(state: Tree, name: str, source: Tree) -> None:
    if name in source:
        state[name] = source[name]
    else:
        state.pop(name, None)

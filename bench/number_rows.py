"""How surely a search finds where a number changed, with real processes, on an idle machine and beside busy ones."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from bench.hangs import crowd
from bench.row import BenchRow, Figure
from tests.cli.shell import new_user
from tests.wheels import build_companion, build_wheel, serve
from whichtorch.cli.command import Exit

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = 30
HASHES = 400_000  # a tenth of a second
# One call into C: on virtual machines, a loop in Python varies by 3 % from process to process.
SCRIPT = f"""import hashlib
import sys
import torch
release, planted, size = int(torch.__version__.split(".")[1]), int(sys.argv[1]), float(sys.argv[2])
hashlib.pbkdf2_hmac("sha256", b"words", b"salt", int({HASHES} * (1 + size * (release >= planted))))
"""


def searches(folder: Path, *, count: int, size: float, load: int, least: float) -> Figure:
    """Search for a slowdown that is planted in a release, which chance chooses; a size of 0 plants none."""
    wheels = folder / "wheels"
    wheels.mkdir()
    build_companion(wheels, "numpy", "2.2.0")
    for release in range(RELEASES):
        build_wheel(wheels, f"9.{release}.0")
    dice, right, blamed, took = Random(29), 0, 0, []
    with serve(wheels) as index, crowd(load):
        user = new_user(folder, index)
        (user.folder / "step.py").write_text(SCRIPT)
        worse = f"{(size or 0.05) * 100:g}%"
        for number in range(count):
            planted = dice.randrange(1, RELEASES)
            words = ("bisect", "step.py", "--measure", "cpu", "--worse", worse, "--quiet")
            command = user.command(*words, "--json", "answer.json", "--", str(planted), str(size))
            begun = time.monotonic()
            ended = subprocess.run(command, cwd=user.folder, env=user.environ, stdout=subprocess.DEVNULL, check=False)
            if ended.returncode not in {Exit.GOOD, Exit.UNANSWERED}:
                ended.check_returncode()
            took.append(time.monotonic() - begun)
            steps = json.loads((user.folder / "answer.json").read_text())["curve"]["steps"]
            found = [step["after"] for step in steps]
            right += found == ([f"9.{planted}.0"] if size else [])
            blamed += bool(found) and found != [f"9.{planted}.0"]
            print(f"  {number}: {found or 'none'}, planted {planted}, {took[-1]:.0f} s", file=sys.stderr, flush=True)
    text = f"{right} of {count} right, {blamed} blame another; {median(took):.0f} s a search, at most {max(took):.0f} s"
    return Figure(text=text, met=right >= least * count)


def rows(count: int) -> list[BenchRow]:
    """Return the rows, of so many searches each."""

    def row(name: str, what: str, target: str, *, size: float, load: int = 0, least: float) -> BenchRow:
        measure = partial(searches, count=count, size=size, load=load, least=least)
        return BenchRow(name=name, what=what, target=target, measure=measure, group="numbers")

    return [
        row("numbers-idle", "a slowdown of 5 % in one of 30 releases", ">= 97 %", size=0.05, least=0.97),
        row("numbers-load", "the same beside four busy processes", ">= 95 %", size=0.05, load=4, least=0.95),
        row("numbers-none", "no slowdown", "no blame", size=0.0, least=1.0),
        row("numbers-none-load", "no slowdown, beside four busy processes", "no blame", size=0.0, load=4, least=1.0),
    ]

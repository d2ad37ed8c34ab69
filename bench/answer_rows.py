"""How soon a command answers: its help, the first cell, and what the records of many earlier runs know."""

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.row import BenchRow, Figure
from tests.wheels import build_companion, build_wheel

SUITE = Path(__file__).parent.parent / "scenarios"
KNOWN_CELLS = 1000
ENVIRONMENTS = 20  # of each made-up run
RECORDS = 200_000
LIMIT, HELP, FIRST_CELL = 2.0, 0.5, 45.0  # seconds


def shown_help(folder: Path) -> Figure:
    """Ask for the help."""
    seconds = statistics.median(_whichtorch(folder, "--help")[0] for _ in range(5))
    return Figure(text=f"{seconds:.2f} s", met=seconds <= HELP)


def first_cell(folder: Path) -> Figure:
    """Run scenarios where nothing is installed, and time the first line of a cell."""
    command = [sys.executable, "-m", "whichtorch", "matrix", *map(str, sorted(SUITE.glob("meta_mm/*.py")))]
    environ = os.environ | {"WHICHTORCH_HOME": str(folder)}
    begin, first = time.monotonic(), 0.0
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not first and line.startswith("["):
                first = time.monotonic() - begin
    assert process.returncode in {0, 1}, f"whichtorch matrix ended with {process.returncode}"
    return Figure(text=f"{first:.0f} s", met=0 < first <= FIRST_CELL)


def known_cells(folder: Path) -> Figure:
    """Run 1,000 cells of a stand-in torch for real, then give the same command again."""
    _whichtorch(folder, *_matrix(folder))
    seconds, output = _whichtorch(folder, *_matrix(folder))
    assert f"{KNOWN_CELLS} cells; all known" in output, output[-2000:]
    return Figure(text=f"{seconds:.2f} s", met=seconds <= 0.6)


def many_records(folder: Path) -> Figure:
    """Give commands twice beside many records: the first makes the index, the second counts."""
    matrix = _matrix(folder)
    _whichtorch(folder, *matrix)
    _multiply(next((folder / "state" / "runs").iterdir()), RECORDS)
    test = "thousand.py[n=7]"
    commands = {"matrix": matrix, "history": ("history", test), "explain": ("explain", test), "runs": ("runs",)}
    took = {name: [_whichtorch(folder, *command)[0] for _ in range(2)] for name, command in commands.items()}
    figures = [f"{name} {again:.2f} s (first {first:.0f} s)" for name, (first, again) in took.items()]
    return Figure(text=", ".join(figures), met=all(again <= LIMIT for _, again in took.values()))


def _matrix(folder: Path) -> tuple[str, ...]:
    """Make a stand-in torch and a script with 1,000 variants; return the command that runs them."""
    wheels, file = folder / "wheels", folder / "matrix.toml"
    if not wheels.exists():
        wheels.mkdir()
        build_wheel(wheels, "9.1.0")
        build_companion(wheels, "numpy", "2.2.0")
        numbers = ", ".join(f'"{number}"' for number in range(KNOWN_CELLS))
        (folder / "thousand.py").write_text(f"# /// scenario\n# [variants]\n# n = [{numbers}]\n# ///\n")
        file.write_text(f'[axes]\ntorch = ["9.1.0"]\nbuild = ["stand-in"]\n[build.stand-in]\nfind-links = "{wheels}"\n')
    return "matrix", "--matrix", str(file), "thousand.py"


def _whichtorch(folder: Path, *arguments: str) -> tuple[float, str]:
    """Return the seconds of a command and what it prints."""
    # an installed tool has its bytecode, whatever this shell says
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ |= {"WHICHTORCH_HOME": str(folder / "state"), "UV_NO_INDEX": "1"}
    command = [sys.executable, "-m", "whichtorch", *arguments]
    begin = time.perf_counter()
    ended = subprocess.run(command, env=environ, cwd=folder, check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    assert ended.returncode in {0, 4}, ended.stderr[-2000:]
    return seconds, ended.stdout


def _multiply(run: Path, count: int) -> None:
    """Make up earlier runs from a real one, each with the same tests in other environments."""
    lines = {name: (run / f"{name}.jsonl").read_text() for name in ("records", "cells", "environments")}
    (own,) = set(re.findall(r'^{"id":"(\w+)"', lines["environments"]))
    for number in range(count // KNOWN_CELLS // ENVIRONMENTS):
        folder = run.with_name(f"20250101-{number:06d}-abcdef")
        folder.mkdir()
        (folder / "run.json").write_text((run / "run.json").read_text().replace(run.name, folder.name))
        for name, text in lines.items():
            with (folder / f"{name}.jsonl").open("w") as file:
                for environment in range(number * ENVIRONMENTS, (number + 1) * ENVIRONMENTS):
                    copied = text.replace(own, f"{environment:012x}").replace("9.1.0", f"8.{environment}.0")
                    file.write(re.sub(r'("key":"|"records":\[")\w{6}', rf"\g<1>{environment:06x}", copied))


ROWS = [
    BenchRow(name="help", what="whichtorch --help, at the median of 5", target=f"<= {HELP} s", measure=shown_help),
    BenchRow(name="known", what="whichtorch matrix again, 1,000 known cells", target="<= 0.6 s", measure=known_cells),
    BenchRow(name="records", what="commands beside 200,000 records", target="<= 2 s", measure=many_records),
    BenchRow(
        name="fresh",
        what="time to the first result on screen, nothing installed",
        target=f"<= {FIRST_CELL:g} s",
        measure=first_cell,
        group="real",
    ),
]

"""Whole searches, over stand-in releases that a real Python runs."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fix.workplace import CORE, Workplace
from whichtorch.base.errors import UsageError
from whichtorch.failures.failure import Failure
from whichtorch.fix.cure_runs import CureTest
from whichtorch.model import Attempt, Outcome, Role, StoppedBy
from whichtorch.process.executor import LocalExecutor
from whichtorch.process.supervision import Ending, Task

BAD = {
    "torch/__init__.py": CORE + "from torch.ops import add\n",
    "torch/ops.py": "import torch.config\ndef add(a, b):\n    if torch.config.strict:\n"
    "        raise RuntimeError('strict')\n    return a - b\ndef other():\n    return 1\n",
    "torch/config.py": "strict = False\nspeed = 1\n",
}
STACK = BAD | {"torch/ops.py": BAD["torch/ops.py"].replace("return a - b", "assert b < 0, 'lost'\n    return a - b")}
GOOD = {
    "torch/__init__.py": CORE + "from torch.ops import add\n",
    "torch/ops.py": '"""Operators."""\nimport torch.config\nfrom torch.helpers import plus\ndef add(a, b):\n'
    "    if torch.config.strict:\n        raise RuntimeError('strict')\n    return plus(a, b)\n"
    "def other():\n    return 2\n",
    "torch/helpers.py": "import math\ndef plus(a, b):\n    return a + b\ndef minus(a, b):\n    return a - b\n",
    "torch/config.py": "strict = False\nspeed = 2\n",
}


def fingerprint(folder: Path) -> str:
    """Return a hash of all files of an environment but bytecode."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return hashlib.sha256(b"".join(bytes(path) + path.read_bytes() for path in files)).hexdigest()


def test_wrong_answer(workplace: Workplace) -> None:
    """A function that the script runs is found with the import and the helper that it needs, and nothing else."""
    bad, good = workplace.environment("bad", BAD), workplace.environment("good", GOOD)
    before = fingerprint(workplace.folder / "envs")
    answer = workplace.fix(bad, good)
    assert {unit.partition(": ")[2] for unit in answer.units} == {
        *("add (changed)", "import plus (added)"),
        "plus (added)",
    }
    assert (answer.with_patch, answer.without_patch, answer.reverted) == ((3, 3), (0, 3), "same")
    assert answer.lines == 5
    assert "minus" not in answer.patch
    assert fingerprint(workplace.folder / "envs") == before


def test_stack_first(workplace: Workplace) -> None:
    """Where the failing stack holds the fix, the first trial finds it, and nobody needs to note what runs."""
    answer = workplace.fix(workplace.environment("bad", STACK), workplace.environment("good", GOOD))
    assert answer.trials_to_cure == 1
    assert not any("noted" in words for words in workplace.said)


@pytest.mark.thorough
def test_resumed(workplace: Workplace) -> None:
    """What was tried is not run again: a search that ended early goes on where it was."""
    bad, good = workplace.environment("bad", BAD), workplace.environment("good", GOOD)
    first = workplace.fix(bad, good, most=0)
    assert first.notes[0].startswith("stopped after 0 trials")
    assert first.notes[1:] == (
        "to go on from here: --max-trials 60 --max-time 1m",
        f"no cure so far: 0 of {first.candidates} changed units that the script reaches had no effect",
    )
    assert first.why_not == ()
    whole, again = workplace.fix(bad, good), workplace.fix(bad, good, most=0)
    assert replace(again, seconds=0) == replace(whole, seconds=0)


@pytest.mark.thorough
def test_a_cure_that_is_not_the_smallest(workplace: Workplace) -> None:
    """Where the trials are used up after the first cure, that one is the patch, and it is said to be no more."""
    bad, good = workplace.environment("bad", BAD), workplace.environment("good", GOOD)
    first = workplace.fix(bad, good).trials_to_cure
    (workplace.folder / "fix").rename(workplace.folder / "before")
    answer = workplace.fix(bad, good, most=first)
    assert answer.patch
    assert answer.with_patch == (3, 3)
    assert "the smallest change that was seen to cure it is in 2 files; a smaller one may be enough" in answer.notes


class FaultyExecutor(LocalExecutor):
    """Is interrupted at its `left`-th task; 0 for never."""

    def __init__(self, left: int = 0) -> None:
        super().__init__()
        self.left = left

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        self.left -= 1
        return super().run(task, cancelled) if self.left else None


class UnwatchedExecutor(LocalExecutor):
    """Cannot watch its third task: the first trial, after a run in each release."""

    tasks = 0

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        self.tasks += 1
        problem = Ending(stopped_by="exit", seconds=1, problem="the supervisor did not answer in time")
        return problem if self.tasks == 3 else super().run(task, cancelled)


def test_a_trial_that_could_not_be_watched(workplace: Workplace) -> None:
    """It is made once more: a machine that was too busy for a moment does not end a search."""
    bad, good = workplace.environment("bad", STACK), workplace.environment("good", GOOD)
    answer = replace(workplace, executor=UnwatchedExecutor()).fix(bad, good)
    assert (answer.trials_to_cure, answer.with_patch) == (1, (3, 3))


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.thorough
def test_interrupted_at_ten_moments(workplace: Workplace, jobs: int) -> None:
    """A search that is interrupted again and again gives the answer of one that was not, and repeats no trial."""
    bad, good = workplace.environment("bad", BAD), workplace.environment("good", GOOD)
    undisturbed = workplace.fix(bad, good)
    shutil.rmtree(workplace.folder / "fix")
    moments = random.Random(12)
    interrupts = 0
    for _ in range(10):
        disturbed = replace(workplace, executor=FaultyExecutor(moments.randint(1, 9)), said=[], jobs=jobs)
        try:
            interrupts += disturbed.fix(bad, good).stopped == "interrupted"
        except KeyboardInterrupt:  # before the first trial
            interrupts += 1
    answer = replace(workplace, jobs=jobs).fix(bad, good)
    assert interrupts >= 3
    assert replace(answer, seconds=0, trials_ahead=0) == replace(undisturbed, seconds=0)
    journals = list((workplace.folder / "fix").glob("trials-*.jsonl"))
    keys = [json.loads(line)["key"] for journal in journals for line in journal.read_text().splitlines()]
    assert len(keys) == len(set(keys))
    assert len(keys) >= undisturbed.trials if jobs > 1 else len(keys) == undisturbed.trials
    assert list((workplace.folder / "fix" / "in-use").iterdir()) == []


ENDLESS = {
    "torch/__init__.py": CORE + "from torch.ops import add\n",
    "torch/ops.py": "def add(a, b):\n    while a != b:\n        step(a)\n    return a\ndef step(a):\n    return a\n",
}
ENDING = ENDLESS | {"torch/ops.py": ENDLESS["torch/ops.py"].replace("while a != b", "if a != b")}


@pytest.mark.thorough
@pytest.mark.parametrize("jobs", [1, 2])
def test_hang(workplace: Workplace, jobs: int) -> None:
    """What spins for ever is cured by the function that its stacks name, without a run that notes what runs."""
    bad, good = workplace.environment("bad", ENDLESS), workplace.environment("good", ENDING)
    answer = replace(workplace, timeout=3, jobs=jobs).fix(bad, good, "import torch\ntorch.add(1, 2)\n")
    assert answer.units == ("torch/ops.py: add (changed)",)
    assert (answer.trials_to_cure, answer.with_patch, answer.without_patch) == (1, (3, 3), (0, 3))


def test_starved() -> None:
    """A trial that was stopped is made again where it had less of the machine than a pass may need."""
    failure = Failure(outcome=Outcome.HANG, signature=None, message="")
    test = CureTest(failure=failure, limit=10, cpu_seconds=3)
    slow = Attempt(role=Role.JUDGE, outcome=Outcome.SLOW, seconds=10, stopped_by=StoppedBy.TIMEOUT, cpu_seconds=2)
    assert test.was_starved(slow)
    assert not test.was_starved(slow.model_copy(update={"cpu_seconds": 9}))
    assert not test.was_starved(slow.model_copy(update={"outcome": Outcome.HANG}))


def test_constant(workplace: Workplace) -> None:
    """A flag that a function reads which ran is found, though no function changed."""
    bad = workplace.environment("bad", BAD | {"torch/config.py": "strict = True\nspeed = 1\n"})
    good = workplace.environment("good", BAD | {"torch/config.py": "strict = False\nspeed = 3\n"})
    answer = workplace.fix(bad, good, "import torch\ntorch.add(1, 1)\n")
    assert answer.patch.splitlines()[3:] == ["-strict = True", "+strict = False", " speed = 1"]
    assert answer.manner == ("it changes a setting: `strict = True` becomes `False`",)


def test_nothing_to_fix(workplace: Workplace) -> None:
    """A script that does not fail in the one, or does not pass in the other, is no question."""
    bad, good = workplace.environment("bad", BAD), workplace.environment("good", GOOD)
    with pytest.raises(UsageError, match="does not pass in bad"):
        workplace.fix(good, bad)
    with pytest.raises(UsageError, match="does not fail in good"):
        workplace.fix(good, good)


def test_left_folders(workplace: Workplace) -> None:
    """What a killed tool left behind is removed by the next search."""
    below = workplace.folder / "fix" / "in-use"
    below.mkdir(parents=True)
    code = "import os; from pathlib import Path; from whichtorch.process import marks\n"
    code += "marks.new_temporary_folder(Path(os.environ['BELOW']))"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"BELOW": str(below)}, check=True)
    assert len(list(below.iterdir())) == 1
    workplace.fix(workplace.environment("bad", STACK), workplace.environment("good", GOOD))
    assert list(below.iterdir()) == []


def test_units_that_others_need_are_not_counted_as_reached(workplace: Workplace) -> None:
    """An import that comes along with a function is no further one that the script reaches."""
    bad, good = workplace.environment("bad", BAD), workplace.environment("good", GOOD)
    script = "import sys, torch\ntorch.add(1, 2)\nassert 'good' in sys.executable\n"
    answer = workplace.fix(bad, good, script)
    words = f"with all {answer.candidates} changed units that the script reaches, it fails as before"
    assert answer.why_not == (words,)

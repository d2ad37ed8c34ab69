"""What a run says to do next: by the cause of a failure, by where else its test passes or fails, on which machines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.results import FAIL, HANG, PASS, attempt, cell, environment, flaky, result
from whichtorch.failures.verdict import judge
from whichtorch.model import Cell, Diagnosis, Environment, Outcome, Run, WaitEdge
from whichtorch.process.evidence.waiting import HangKind
from whichtorch.process.supervision import Ending
from whichtorch.reports.cell_text import next_lines, where_it_ran

OLD, MIDDLE, NEW = (environment(torch) for torch in ("2.10.0", "2.11.0", "2.12.1"))
THREADS = environment("2.12.1", config="single-thread", options=("--torch", "2.12.1", "--config", "single-thread"))
DOCS = Path(__file__).parent.parent.parent / "docs" / "my-script-hangs.md"
EVERYWHERE = "it fails the same way in all 3 releases tried: it is not the release"


@pytest.mark.parametrize(
    ("given", "again"),
    [
        ((), "nox -s matrix --"),
        (("--jobs", "2"), "nox -s matrix --"),
        (("--executor", "tls://head:8786", "--jobs", "2"), "nox -s matrix -- --executor tls://head:8786"),
        (("--executor=tls://a:1",), "nox -s matrix -- --executor tls://a:1"),
    ],
)
def test_a_command_runs_where_the_run_did(given: tuple[str, ...], again: str) -> None:
    """A cell that was red on a cluster's workers is run again there, and searched there; records are read here."""
    called = where_it_ran(lambda name: f"nox -s {name} --", Run(id="1", started="", command=("matrix", *given)))
    assert called("matrix") == again
    assert called("bisect") == again.replace("matrix", "bisect")
    assert called("explain") == "nox -s explain --"


def called(command: str) -> str:
    return f"whichtorch {command}"


def failed(where: Environment, stderr: str, *, stdout: str = "", exit_code: int = 1, name: str = "repro.py") -> Cell:
    """Return a cell as it is judged from what its script wrote."""
    ending = Ending(stopped_by="exit", exit_code=exit_code, seconds=1)
    verdict = judge(ending, stderr, 4096, stdout=stdout)
    made = attempt(FAIL, exit_code=exit_code, message=verdict.message)
    return cell(where, verdict.outcome, name, signature=verdict.signature, attempts=(made,))


def hung(where: Environment, kind: str, cycle: tuple[WaitEdge, ...] = ()) -> Cell:
    made = attempt(HANG, diagnosis=Diagnosis(kind=kind, summary="who waits for whom", cycle=cycle))
    return cell(where, HANG, "repro.py", attempts=(made,), signature=f"stuck: {kind} in repro.py:4")


def crashed(where: Environment) -> Cell:
    return cell(where, Outcome.CRASH, "repro.py", signature="SIGSEGV in mm (functional.py) < f (repro.py:4)")


def passed(where: Environment) -> Cell:
    return cell(where, PASS, "repro.py")


def steps(*cells: Cell) -> list[str]:
    environments = (OLD, MIDDLE, NEW, THREADS)
    return list(next_lines(result(environments, cells), called))


def traceback(*lines: str, file: str = "/home/me/repro.py", line: int = 4) -> str:
    head = f'Traceback (most recent call last):\n  File "{file}", line {line}, in <module>\n    source\n'
    return head + "\n".join(lines) + "\n"


def no_module(name: str) -> str:
    return traceback(f"ModuleNotFoundError: No module named '{name}'")


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("einops", "einops"),
        ("cv2", "opencv-python"),
        ("PIL", "pillow"),
        ("sklearn", "scikit-learn"),
        ("yaml", "pyyaml"),
    ],
)
def test_a_missing_module_is_installed_by_the_name_of_its_package(module: str, package: str) -> None:
    """Whether the names are the same or not, and in all environments that lack it."""
    assert steps(failed(OLD, no_module(module)), failed(NEW, no_module(module))) == [
        "whichtorch matrix repro.py --torch 2.10.0,2.12.1 --build pypi "
        f"--with {package}  # module '{module}' is not installed"
    ]


def test_a_module_of_no_known_package_is_left_to_the_user() -> None:
    """No package is made up for a name that the table does not have."""
    (step,) = steps(failed(NEW, no_module("no_package_has_this")))
    assert "--with PACKAGE  # module 'no_package_has_this' is not installed" in step


def test_a_module_of_the_users_own_is_no_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stranger's package of the same name is never offered."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "models.py").touch()
    monkeypatch.chdir(tmp_path)
    (step,) = steps(failed(NEW, no_module("models")))
    assert step.endswith(
        " --env PYTHONPATH=src  # module 'models' is your src/models.py, which is not beside the script"
    )
    (tmp_path / "setup.py").touch()
    assert " --install .  # " in next(iter(steps(failed(NEW, no_module("models")))))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("transformers.nothing", "the installed 'transformers' has no 'transformers.nothing': bisect --package"),
        ("distutils", "module 'distutils' is not in this Python's standard library: an older --python has it"),
    ],
)
def test_what_no_package_adds_is_told_apart(module: str, words: str) -> None:
    """A part of an installed package needs another version of it, a part of Python another Python."""
    (step,) = steps(failed(NEW, no_module(module)))
    assert words in step


@pytest.mark.parametrize("module", ["torch.export", "torchvision.transforms.functional_tensor"])
def test_a_missing_part_is_a_matter_of_the_release(module: str) -> None:
    """Where it passes elsewhere, that is searched: it is never offered as a package."""
    assert steps(failed(OLD, no_module(module)), passed(NEW)) == [
        "whichtorch bisect repro.py --build pypi --good 2.12.1 --bad 2.10.0  # finds the release that fixed it"
    ]


UNREADABLE = '  File "/home/me/{file}", line 3\n    return x +\n              ^\nSyntaxError: invalid syntax\n'


@pytest.mark.parametrize(
    ("stderr", "place"),
    [
        (UNREADABLE.format(file="repro.py"), "repro.py:3"),
        (traceback(UNREADABLE.format(file="helper.py").rstrip()), "helper.py:3"),
        (UNREADABLE.format(file="repro.py").replace("SyntaxError: ", "IndentationError: unexpected "), "repro.py:3"),
    ],
)
def test_a_script_that_python_cannot_read_is_told_with_its_line(stderr: str, place: str) -> None:
    """No search is offered for it, and a file that the script imports is named itself."""
    assert steps(*(failed(where, stderr) for where in (OLD, NEW))) == [
        f"it is the script: Python 3.11.7 cannot read it; look at {place}"
    ]


@pytest.mark.parametrize(
    "said",
    [
        "repro.py: error: the following arguments are required: --size",
        "Error: Missing argument 'SIZE'.",
        "Error: Missing option '--size'.",
    ],
)
def test_missing_arguments_are_given_behind_two_dashes(said: str) -> None:
    """As argparse and click say it; in one environment or in several."""
    (step,) = steps(failed(NEW, f"usage: repro.py [-h]\n{said}\n", exit_code=2))
    assert step == (
        f"whichtorch matrix repro.py --torch 2.12.1 --build pypi -- ARGUMENTS  # it needs arguments: {said}"
    )


ASSERTION = traceback("AssertionError: größer: 1 is not 2")


def test_what_fails_alike_everywhere_is_not_the_release() -> None:
    """It says how many environments ran it, counts no other, and names the user's line."""
    gone = cell(THREADS, Outcome.UNBUILDABLE, "repro.py")
    assert steps(*(failed(where, ASSERTION) for where in (OLD, MIDDLE, NEW)), gone) == [
        "your script fails the same way in all 3 releases tried: it is not the release; look at repro.py:4"
    ]
    assert steps(*(failed(where, ASSERTION, name="family/case") for where in (OLD, MIDDLE, NEW))) == [
        f"{EVERYWHERE}; look at repro.py:4"
    ]


def test_a_failure_without_an_exception_is_told_by_what_it_said() -> None:
    """The last line counts, of stdout if stderr has only warnings."""
    warning = "/env/site-packages/torch/x.py:3: UserWarning: slow\n  warnings.warn('slow')\n"
    alike = [failed(where, warning, stdout="3 checked\nFAILED: no λ\n") for where in (OLD, NEW)]
    assert steps(*alike) == [
        "your script fails the same way in all 2 releases tried: it is not the release; it says: FAILED: no λ"
    ]
    other = failed(NEW, "cannot open data.bin\n")
    assert steps(alike[0], other) == ["whichtorch bisect repro.py --build pypi  # finds the release that changed it"]


def test_what_torch_raises_everywhere_may_be_a_bug_of_torch() -> None:
    """It is not the release either, and a small case shows whose it is."""
    raised = '  File "/env/lib/python3.11/site-packages/torch/_ops.py", line 3, in check\n    raise ValueError("no")\n'
    stderr = traceback(raised + "ValueError: no")
    first, second = steps(*(failed(where, stderr) for where in (OLD, NEW)))
    assert first.endswith("it is not the release; look at repro.py:4")
    assert second.startswith("whichtorch triage repro.py --torch 2.12.1 --build pypi  # makes a small case")


def test_one_release_tells_nothing_of_others() -> None:
    """Neither does one release in two configs: other releases are tried."""
    others = "whichtorch matrix repro.py --torch recent:3 --build pypi  # shows whether it fails with other"
    assert steps(failed(NEW, ASSERTION))[0].startswith(others)
    assert steps(failed(NEW, ASSERTION), failed(THREADS, ASSERTION))[0].startswith(others)


def test_what_a_later_release_has_right_is_had_from_there() -> None:
    """One failing release or a block of old ones: the last of them and the first that passes."""
    fix = "whichtorch fix repro.py --build pypi --good {} --bad {}  # turns the fix in {} into a patch for {}"
    assert steps(failed(MIDDLE, ASSERTION), passed(NEW), passed(OLD)) == [
        fix.format("2.12.1", "2.11.0", "2.12.1", "2.11.0")
    ]
    assert steps(failed(OLD, ASSERTION), failed(MIDDLE, ASSERTION), passed(NEW)) == [
        fix.format("2.12.1", "2.11.0", "2.12.1", "2.11.0")
    ]


def test_releases_far_apart_and_crashes_are_bisected() -> None:
    """They differ in too much, or in more than Python, for `fix` to begin with."""
    fixed = "whichtorch bisect repro.py --build pypi --good 2.12.1 --bad {}  # finds the release that fixed it"
    assert steps(failed(OLD, ASSERTION), passed(NEW)) == [fixed.format("2.10.0")]
    assert steps(crashed(MIDDLE), passed(NEW)) == [fixed.format("2.11.0")]


def test_what_a_later_release_breaks_is_bisected() -> None:
    """Between the last that passes and the first that fails after it."""
    broke = "whichtorch bisect repro.py --build pypi --good {} --bad {}  # finds the release that broke it"
    assert steps(passed(OLD), failed(MIDDLE, ASSERTION), failed(NEW, ASSERTION)) == [broke.format("2.10.0", "2.11.0")]
    assert steps(failed(OLD, ASSERTION), passed(MIDDLE), failed(NEW, ASSERTION)) == [broke.format("2.11.0", "2.12.1")]
    assert steps(passed(OLD), crashed(NEW)) == [broke.format("2.10.0", "2.12.1")]


def test_what_another_factor_decides_is_explained() -> None:
    """The same release passes with another config."""
    assert steps(failed(NEW, ASSERTION), passed(THREADS)) == [
        "whichtorch explain repro.py  # says why it fails there and passes here"
    ]


def test_what_fails_now_and_then_is_bisected() -> None:
    """It does not fail the same way everywhere if it passes now and then."""
    cells = [flaky(where, FAIL, 1, 3) for where in (OLD, NEW)]
    assert steps(*cells) == ["whichtorch bisect family/case --build pypi  # finds the release that changed it"]


@pytest.mark.parametrize("kind", list(HangKind))
def test_a_hang_has_the_remedy_of_its_kind(kind: HangKind) -> None:
    """A copied lock, ranks that disagree, an empty queue, an endless loop and all others, by the words of the docs."""
    rows = re.findall(r"^\| (`[^|]+) \|[^|]+\| ([^|]+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    (told,) = [words for kinds, words in rows if f"`{kind}`" in kinds.split(", ")]
    assert told.startswith(kind.remedy)
    first, second = steps(hung(OLD, kind), hung(NEW, kind))
    assert first == kind.remedy
    assert second.endswith("in all 2 releases tried: it is not the release; look at repro.py:4")


def test_who_sleeps_is_to_act_next() -> None:
    """Where the others wait for a thread that sleeps, what helps begins with that one."""
    edge = WaitEdge(text="rank 1 sleeps in time.sleep (a.py:7)", waiting="time to pass")
    told = [steps(hung(OLD, kind, (edge,)))[0] for kind in (HangKind.COLLECTIVE, HangKind.SLEEP)]
    assert told == ["Find out why rank 1 sleeps in time.sleep (a.py:7).", HangKind.SLEEP.remedy]


def test_a_hang_that_an_older_release_has_not_is_bisected_first() -> None:
    """Its remedy is told as well."""
    first, second = steps(passed(OLD), hung(NEW, "wait for a queue"))
    assert first.startswith("whichtorch bisect repro.py --build pypi --good 2.10.0 --bad 2.12.1")
    assert second == HangKind.QUEUE.remedy


def test_a_hang_of_a_kind_that_a_later_version_knows_has_no_remedy() -> None:
    """It is treated as any failure of one release."""
    assert steps(hung(NEW, "wait for the moon"))[0].startswith("whichtorch matrix repro.py --torch recent:3")


def test_what_needs_more_memory_gets_more() -> None:
    """An option or its header can allow it more; other releases may need less."""
    first, second = steps(cell(NEW, Outcome.OOM, "repro.py", signature="memory"))
    assert first == "give it more memory: --memory SIZE, or memory_mb in the script's header"
    assert "recent:3" in second


def test_more_memory_does_not_help_against_too_many_processes() -> None:
    """A script that starts more processes than it may is `oom`, too."""
    assert not any("--memory" in step for step in steps(cell(NEW, Outcome.OOM, "repro.py", signature="processes")))


def test_what_is_slow_somewhere_does_not_fail_everywhere() -> None:
    """Nobody knows how it would have ended there."""
    cells = [*(failed(where, ASSERTION) for where in (OLD, MIDDLE)), cell(NEW, Outcome.SLOW, "repro.py")]
    assert steps(*cells) == ["whichtorch bisect repro.py --build pypi  # finds the release that changed it"]


def test_what_is_slow_gets_more_time() -> None:
    """Four times its limit, as in the longer look."""
    made = attempt(Outcome.SLOW, limit=15)
    slow = cell(NEW, Outcome.SLOW, "repro.py", attempts=(made,))
    assert steps(slow) == ["whichtorch matrix repro.py --torch 2.12.1 --build pypi --timeout 60  # gives it more time"]


def test_environments_that_cannot_be_had_are_read_up_on() -> None:
    """Where nothing else went wrong, the log says why; where there is none, the machine is checked."""
    gone = environment("9.9.9", outcome=Outcome.UNBUILDABLE, reason="no wheel", log="/state/install.log")
    run = result([gone], [cell(gone, Outcome.UNBUILDABLE)])
    assert list(next_lines(run, called)) == ["read why torch-9.9.9-pypi is unbuildable: /state/install.log"]
    lost = cell(NEW, Outcome.ERROR)
    assert list(next_lines(result([NEW], [lost]), called)) == ["whichtorch doctor  # checks this machine"]


def test_a_run_without_surprises_is_looked_at() -> None:
    """A page shows it."""
    assert steps(passed(NEW)) == ["whichtorch report  # makes a page that shows each cell"]


def test_what_no_release_can_be_the_cause_of_installs_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative import, input that is not there, bytes that are no text, and mistakes of the script's own."""
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "pkg" / "__init__.py").touch()
    (tmp_path / "src" / "pkg" / "tool.py").write_text("import torch\n\n\nfrom . import other\n")
    (tmp_path / "repro.py").write_text("input()\n")
    monkeypatch.chdir(tmp_path)
    relative = traceback("ImportError: attempted relative import", file=f"{tmp_path}/src/pkg/tool.py")
    assert steps(failed(NEW, relative, name="src/pkg/tool.py")) == [
        "whichtorch matrix --torch 2.12.1 --build pypi --env PYTHONPATH=src -- python -m pkg.tool  "
        "# src/pkg/tool.py is part of a package, and imports from it"
    ]
    assert steps(failed(NEW, traceback("EOFError: EOF when reading a line"))) == [
        "whichtorch matrix --torch 2.12.1 --build pypi -- sh -c 'python repro.py < input'  "
        "# a test gets no input: a command can read it from a file"
    ]
    undecoded = (
        "SyntaxError: Non-UTF-8 code starting with '\\xff' in file /home/me/repro.py on line 2, but no encoding\n"
    )
    assert steps(failed(NEW, undecoded)) == ["it is the script: Python 3.11.7 cannot read it; look at repro.py:2"]
    assert steps(failed(NEW, traceback("FileNotFoundError: no data.bin"))) == [
        "it is the script, not torch; look at repro.py:4"
    ]
    assert "recent:3" in steps(failed(NEW, traceback("AttributeError: torch has no attribute 'x'")))[0]


def test_what_comes_and_goes_in_one_release_is_counted() -> None:
    """No search is offered: one release does not tell from another."""
    (step,) = steps(flaky(NEW, FAIL, 3, 6, "repro.py"))
    assert step.endswith(
        " --torch 2.12.1 --build pypi --repeat 20 --fresh  # it comes and goes, 3 of 6: shows how often"
    )

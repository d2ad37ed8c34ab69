"""What a killed tool leaves on the disk goes with the next command, and nothing else does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from whichtorch.process.marks import temporary_folder
from whichtorch.records.store import OPEN, clear_left_behind, new_run

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.records.test_store import record
from whichtorch.process.marks import new_temporary_folder
from whichtorch.records.store import new_run

store = new_run(Path(sys.argv[1]), ("matrix",))
for is_recorded, has_ended in ((True, False), (False, False), (False, True)):
    folder = store.attempt_folder()
    (folder / "stdout.txt").write_text("a secret")
    if not has_ended:
        (folder / "tmp" / "large").mkdir(parents=True)
    if is_recorded:
        made = record()
        path = store.path_of(folder) + "/stdout.txt"
        store.add_record(made.model_copy(update={"attempt": made.attempt.model_copy(update={"stdout": path})}))
(store.folder / "project-copy").mkdir()
print(new_temporary_folder(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_attempt_that_did_not_end_goes_with_its_files(tmp_path: Path) -> None:
    """Of a killed run the recorded attempt keeps its output; the other one, which nobody has redacted, is removed."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    left = Path(killed.stdout.strip())
    assert left.is_dir(), killed.stderr
    clear_left_behind(tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    assert {str(path.relative_to(run)) for path in run.rglob("*")} == {
        *(f"{name}.jsonl" for name in ("records", "cells", "environments", "scenarios")),
        *("run.json", "attempts", "attempts/00001", "attempts/00001/stdout.txt"),
    }
    assert not left.exists()


def test_the_part_of_a_file_that_a_killed_tool_was_writing_goes(tmp_path: Path) -> None:
    """It may lie beside an environment that is complete; the part that a living process writes stays."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = tmp_path / "envs" / "368ed1af88d4"
    folder.mkdir(parents=True)
    left, written = (folder / f".installed.txt.{pid}-140426007262912" for pid in (ended.pid, os.getpid()))
    for each in (left, written):
        each.write_text("torch==9.1.0")
    clear_left_behind(tmp_path)
    assert [*folder.iterdir()] == [written]


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_in_use_stays(tmp_path: Path, ends: bool) -> None:
    """The attempts of a run that goes on stay, those of one that ended, and the temporary folders of living tools."""
    with temporary_folder() as folder, new_run(tmp_path, ("matrix",)) as store:
        scratch = store.attempt_folder() / "tmp"
        scratch.mkdir()
        if ends:
            store.__exit__(None)
        clear_left_behind(tmp_path)
        assert scratch.is_dir()
        assert folder.is_dir()
    assert not folder.exists()


def test_a_run_that_was_broken_off_is_cleared_by_the_next_tool(tmp_path: Path) -> None:
    """A second Ctrl-C waits for no attempt, so that the run stays marked as one that may have left something."""
    with pytest.raises(KeyboardInterrupt), new_run(tmp_path, ("matrix",)) as broken_off:
        raise KeyboardInterrupt
    with new_run(tmp_path, ("matrix",)) as ended:
        pass
    assert [run.exists() for run in (broken_off.folder / OPEN, ended.folder / OPEN)] == [True, False]

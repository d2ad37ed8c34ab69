"""What was seen on several machines becomes one answer.

The samples are what `stacks --json` wrote of the two launchers of a real job: two machines with two gloo ranks each, of
which rank 2 calls `broadcast` in a function of its own, and the others `all_reduce`. Paths are shortened.
"""

import json
import shutil
from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.watch.process_report import merged

SAMPLES = Path(__file__).parent / "samples"
HOSTS = [SAMPLES / "host1.json", SAMPLES / "host2.json"]


def changed(folder: Path, name: str, **fields: object) -> Path:
    """Return a copy of the first sample with other fields."""
    path = folder / name
    path.write_text(json.dumps(json.loads(HOSTS[0].read_text()) | fields))
    return path


def test_ranks_of_all_machines_are_compared() -> None:
    """The rank that is elsewhere is named with its machine, and its line in code that this machine does not have."""
    report = merged(HOSTS)
    assert report.diagnosis.summary == (
        "ranks 0, 1 and 3 wait in torch.distributed.all_reduce (train.py:17); "
        "rank 2 (host2) waits in torch.distributed.broadcast (train.py:11); "
        "the ranks are not in the same call; each waits for the others"
    )
    assert sorted(report.diagnosis.ranks.values()) == [0, 1, 2, 3]


def test_stacks_of_all_machines_that_are_alike_are_told_once() -> None:
    """Three ranks share one stack; the last line says which process each of them is."""
    lines = list(merged(HOSTS).lines)
    assert sum("all_reduce (distributed_c10d.py" in line for line in lines) == 1
    assert any(line.startswith("ranks 0, 1 and 3, the main thread of each") for line in lines)
    assert lines[-1] == "processes of the ranks: 0: 374, 1: 375 on host1; 2: 376, 3: 377 on host2"


def test_of_one_machine_only_the_others_are_asked_for() -> None:
    """Ranks that run elsewhere are not said to be missing."""
    assert (
        "of ranks 2 and 3, on other machines, `whichtorch stacks --merge` tells" in merged(HOSTS[:1]).diagnosis.summary
    )


def test_equal_numbers_of_processes_are_told_apart(tmp_path: Path) -> None:
    """Two machines give processes the same numbers: nothing of one is taken for the other's."""
    renumbered = HOSTS[1].read_text()
    for old, new in ((376, 374), (377, 375), (32697, 32696)):
        renumbered = renumbered.replace(f":{old}", f":{new}")
    (tmp_path / "host2.json").write_text(renumbered)
    shown, wanted = merged([HOSTS[0], tmp_path / "host2.json"]), merged(HOSTS)
    assert shown.diagnosis.summary == wanted.diagnosis.summary
    assert len({process.pid for process in shown.processes}) == len(wanted.processes)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    """Each file that cannot be used is named with what is wrong with it, and the remedy is given once."""
    (tmp_path / "cut.json").write_text(HOSTS[0].read_text()[:1000])
    (tmp_path / "foreign.json").write_text("[]")
    (tmp_path / "below").mkdir()
    files = [
        tmp_path / "cut.json",
        tmp_path / "foreign.json",
        changed(tmp_path, "old.json", schema=None),
        changed(tmp_path, "new.json", schema=99),
        changed(tmp_path, "damaged.json", processes=[{"pid": "x"}]),
        changed(tmp_path, "empty.json", processes=[]),
        tmp_path / "missing.json",
        HOSTS[0],
        Path(shutil.copy(HOSTS[0], tmp_path / "copy.json")),
        Path(shutil.copy(HOSTS[1], tmp_path / "below" / "host1.json")),
    ]
    with pytest.raises(UsageError) as caught:
        merged(files)
    problems = [line.partition(": ")[2] for line in caught.value.message.splitlines()]
    assert problems == [
        "it is no JSON, or was cut off",
        "it was not written by `whichtorch stacks`",
        "it is of an older whichtorch, and this one reads form 1: use one version on all machines",
        "it is of form 99, and this one reads form 1: use one version on all machines",
        "it is damaged at pid",
        "it holds no processes",
        "No such file or directory",
        "it holds the same as that of host1",
        "another file is called host1, too, and the name tells the machines apart",
    ]
    assert all(str(path) in caught.value.message for path in files if path != HOSTS[0])
    assert "--json" in caught.value.hint


def test_fields_of_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    """Within a form, fields may be added, at any depth."""
    content = json.loads(HOSTS[0].read_text())
    content["new"] = content["processes"][0]["new"] = content["processes"][0]["threads"][0]["new"] = 1
    (tmp_path / "host1.json").write_text(json.dumps(content))
    assert merged([tmp_path / "host1.json"]).processes == merged(HOSTS[:1]).processes


def test_a_merged_answer_is_not_merged_again(tmp_path: Path) -> None:
    """Its machines have their names already."""
    (tmp_path / "both.json").write_text(merged(HOSTS).json_text)
    with pytest.raises(UsageError, match="of several machines already"):
        merged([tmp_path / "both.json"])

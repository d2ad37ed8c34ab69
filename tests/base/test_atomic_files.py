"""Files that are there whole or not at all."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from whichtorch.base.atomic_files import remove_tree, write_atomic


def test_threads_write_one_file_at_once(tmp_path: Path) -> None:
    """Several threads that write one file do not take each other's half away: it ends with what one of them wrote."""
    file = tmp_path / "mark"
    texts = [str(number) * 4096 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            list(pool.map(lambda text: write_atomic(file, text), texts))
            assert file.read_text(encoding="utf-8") in texts
    assert list(tmp_path.iterdir()) == [file]


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    """Where the file cannot get its name, the part of it goes, too."""
    (tmp_path / "run.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomic(tmp_path / "run.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_killed_removal_is_finished_by_the_next(tmp_path: Path) -> None:
    """What was moved aside and not removed goes when the folder is removed again, even if that is not there."""
    (tmp_path / ".removed-venv-1-2" / "lib").mkdir(parents=True)
    remove_tree(tmp_path / "venv")
    assert not list(tmp_path.iterdir())

"""Files that are there whole or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from whichtorch.matrix.atomic_files import write_atomic


def test_threads_write_one_file_at_once(tmp_path: Path) -> None:
    """Several threads that write one file do not take each other's half away: it ends with what one of them wrote."""
    file = tmp_path / "mark"
    texts = [str(number) * 4096 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            list(pool.map(lambda text: write_atomic(file, text), texts))
            assert file.read_text(encoding="utf-8") in texts
    assert list(tmp_path.iterdir()) == [file]

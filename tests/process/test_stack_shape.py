"""Processes that are at the same places are alike, by what py-spy has written of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from whichtorch.process.evidence.capture import stack_shape


def written(folder: Path, *lines: int, **fields: Any) -> Path:
    """Return a file as py-spy writes it, with a thread at each line."""
    path = folder / "stacks.json"
    threads = [{"frames": [{"filename": "a.py", "name": "f", "line": line} | fields]} for line in lines]
    path.write_text(json.dumps(threads))
    return path


def test_the_order_of_threads_and_the_values_do_not_count(tmp_path: Path) -> None:
    """What counts are functions and lines."""
    shape = stack_shape(written(tmp_path, 1, 2))
    assert shape is not None
    assert stack_shape(written(tmp_path, 2, 1, locals=[{"name": "rank"}])) == shape
    assert stack_shape(written(tmp_path, 1, 3)) != shape
    assert stack_shape(written(tmp_path, 1)) != shape


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", "[1]", '[{"frames": null}]', '[{"frames": [{}]}]'])
def test_what_tells_nothing_has_no_shape(tmp_path: Path, text: str) -> None:
    """Whatever a collector wrote, it is like no other."""
    (tmp_path / "x").write_text(text)
    assert stack_shape(tmp_path / "x") is None
    assert stack_shape(tmp_path / "missing") is None

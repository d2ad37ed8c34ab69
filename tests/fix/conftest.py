"""Where whole searches run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fix.workplace import Workplace


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(folder=tmp_path, said=[])

"""Where whole searches run."""

from pathlib import Path

import pytest

from tests.fix.workplace import Workplace


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(folder=tmp_path, said=[])

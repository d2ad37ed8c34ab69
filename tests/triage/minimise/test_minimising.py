"""How candidates are put to a script's failure."""

import threading
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.patience import PATIENCE
from whichtorch.matrix.variation import Observation
from whichtorch.search.runs_oracle import Journal, WorkerPool
from whichtorch.triage.minimise.minimising import Minimising, SameFailure


class TwoAtOnce(SimpleNamespace):
    """Says no to the first two candidates when both have begun, and to all others."""

    both = threading.Barrier(2)
    runs = SimpleNamespace(workers=lambda jobs: WorkerPool(jobs, lambda: None))
    reference = None
    numbers = count()

    def __call__(self, source: str) -> bool:
        if next(self.numbers) < 2:
            self.both.wait(PATIENCE)
        return False


def test_several_candidates_are_tried_at_once(tmp_path: Path) -> None:
    """Neither ends before the other has begun."""
    minimising = Minimising(
        same=cast(SameFailure, TwoAtOnce()),
        whole=cast(Observation, None),
        calls=(),
        has_own_check=False,
        known=Journal(tmp_path / "answers", bool),
        jobs=2,
        tell=lambda _: None,
    )
    source = "a = 1\nb = a + 1\nprint(a, b)\n"
    with minimising.oracle:
        assert minimising._reduced(source).source == source

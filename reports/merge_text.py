"""What merging came to, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.model import Run
    from matrix.records.merging import Merged


def merge_lines(merged: Merged, run: Run) -> Iterator[str]:
    """Yield how many of what were merged, and each cell about which the parts disagree."""
    twice = f", {merged.twice} of which were there twice" if merged.twice else ""
    for part in merged.parts:
        state = "" if part.ended and not part.interrupted else "; it did not come to its end"
        yield f"{part.id}: {sum(part.outcomes.values())} cells, started {part.started}{state}"
    yield (
        f"merged into {run.id}: {merged.environments} environments, {len(merged.cells)} cells, "
        f"{merged.records} records{twice}"
    )
    yield from (f"conflict  {cell.name}: {cell.conflict}" for cell in merged.conflicts)

"""What reports say of a cell goes for the machines that it ran on."""

import pytest

from whichtorch.model import Run
from whichtorch.reports.cell_text import where_it_ran


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

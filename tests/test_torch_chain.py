"""Real torch, in runs that share caches."""

from pathlib import Path

import pytest

from tests.real_torch import run_of

pytestmark = [pytest.mark.torch, pytest.mark.releases]


def test_what_an_earlier_run_has_cached_may_fail(tmp_path: Path) -> None:
    """The second run fails with a cache that torch itself has written; which one, and its switch, are known."""
    (cell,) = run_of(tmp_path, "warm/compiled_autograd", release="2.7.1")["cells"]
    chain = cell["attempts"][-1]["evidence"]["chain"]
    assert (cell["variant"], cell["outcome"], chain["run"]) == ({"runs": "2"}, "fail", 2)
    assert chain["culprit"] == "AOTAutograd's cache"
    assert chain["cure"].endswith("; with TORCHINDUCTOR_AUTOGRAD_CACHE=0 it passes")
    assert min(chain["read"][name] for name in ("AOTAutograd's cache", "Inductor's FX graph cache")) >= 1

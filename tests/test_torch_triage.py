"""Real torch, from a script to a case: the layer, the culprit pass, and the smallest script."""

from pathlib import Path

import pytest

from tests.real_torch import call, run_of

pytestmark = pytest.mark.torch

NO_VECTORS = ("--env", "TORCHINDUCTOR_VEC_ISA_OK=0")  # else each run compiles seven programs to see what the CPU can do
PLANTED = """\
import torch
import torch._inductor.config


def swap(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default


torch._inductor.config.post_grad_custom_post_pass = swap


@torch.compile
def wave(x):
    return torch.sin(x) * 2 + 1


x = torch.linspace(0, 1, 16)
torch.testing.assert_close(wave(x), torch.sin(x) * 2 + 1)
"""


def test_a_planted_pass_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that Inductor applies, the pass that makes the result wrong is named."""
    (tmp_path / "run").mkdir()
    (environment,) = run_of(tmp_path / "run", "meta/nonzero")["environments"]
    interpreter = str(Path(environment["interpreter"]).expanduser())
    (tmp_path / "planted.py").write_text(PLANTED)
    # what a bisection by hand has left behind steers nothing
    (tmp_path / "cache" / "bisect").mkdir(parents=True)
    (tmp_path / "cache" / "bisect" / "bisect_status.txt").write_text("backend=eager\n")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    case = call(tmp_path, "triage", "planted.py", "--interpreter", interpreter, "--until", "classify", *NO_VECTORS)
    assert (case["classification"]["category"], case["classification"]["layer"]) == ("accuracy", "Inductor")
    assert case["ladder"]["guilty"].endswith(": post_grad_custom_post_pass")

"""Real torch wheels, real hangs: what the suite says of releases whose outcomes are known."""

from pathlib import Path

import pytest

from tests.real_torch import call, run_of

pytestmark = pytest.mark.torch


def outcomes(tmp_path: Path, *options: str) -> dict[tuple[str, str, str], str]:
    """Run the matrix in the project's own state; return outcomes by scenario, torch and config."""
    result = call(tmp_path, "matrix", "--build", "pypi", *options)
    environments = {environment["id"]: environment for environment in result["environments"]}
    return {
        (
            cell["scenario"],
            environments[cell["environment"]]["torch"],
            environments[cell["environment"]]["config"],
        ): cell["outcome"]
        for cell in result["cells"]
    }


EACH = pytest.mark.parametrize("torch", ["2.11.0", "2.12.1", pytest.param("2.15.0", marks=pytest.mark.releases)])


@EACH
def test_fake_tensor_add_fails_only_before_its_fix(tmp_path: Path, torch: str) -> None:
    """FakeTensor add_ with a meta right-hand side fails in 2.11.0 and passes in 2.12.1 and 2.15.0."""
    found = outcomes(tmp_path, "--torch", torch, "fake_tensor/add_meta[level=fake]")
    assert found["fake_tensor/add_meta", torch, "default"] == ("fail" if torch == "2.11.0" else "pass")


@EACH
def test_fork_after_openmp_hangs_only_with_libgomp_and_threads(tmp_path: Path, torch: str) -> None:
    """The forked child hangs under `default`, and passes with one thread or with Intel's OpenMP, in every release."""
    found = outcomes(
        tmp_path, *("--torch", torch, "--config", "default,single-thread,iomp"), "threads/fork_after_openmp[threads=2]"
    )
    by_config = [found["threads/fork_after_openmp", torch, config] for config in ("default", "single-thread", "iomp")]
    assert by_config == ["hang", "pass", "pass"]


@pytest.mark.releases
def test_crash_is_seen_on_its_side_of_the_boundary(tmp_path: Path) -> None:
    """channel_shuffle with no groups kills 2.7.1 by SIGFPE, and no later release."""
    found = outcomes(tmp_path, "--torch", "2.7.1,2.8.0", "eager/channel_shuffle_zero")
    assert [found["eager/channel_shuffle_zero", torch, "default"] for torch in ("2.7.1", "2.8.0")] == ["crash", "pass"]


DRAWS = """\
import threading, torch
from torch.utils.data import DataLoader

def draw():
    while True:
        torch.rand(2_000_000)

for _ in range(2):
    threading.Thread(target=draw, daemon=True).start()
while True:
    for batch in DataLoader(torch.arange(64), batch_size=8, num_workers=2):
        pass
"""


def test_a_worker_that_inherits_a_locked_generator_hangs(tmp_path: Path) -> None:
    """Though threads of the parent draw on, the worker that waits for the mutex of the generator is named."""
    (tmp_path / "draws.py").write_text(DRAWS)
    (cell,) = call(
        tmp_path, "matrix", "--build", "pypi", "--torch", "2.11.0", "--timeout", "30", "draws.py", exits=(1,)
    )["cells"]
    assert cell["outcome"] == "hang"
    diagnosis = cell["attempts"][-1]["diagnosis"]
    assert diagnosis["kind"] == "lock copied by fork"
    assert "THPGenerator_manualSeed" in diagnosis["summary"]


RANKS = """\
import os, time, torch.distributed as dist, torch.multiprocessing as mp

def train(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    while not os.path.exists("/no/such/file") and rank:
        time.sleep(0.5)
    dist.barrier()

if __name__ == "__main__":
    mp.start_processes(train, args=(os.path.abspath("store"),), nprocs=2, start_method="fork")
"""


def test_ranks_that_wait_for_one_that_polls_are_probably_stuck(tmp_path: Path) -> None:
    """It is said while they run, with what the one looks for; the verdict waits for the end of their time."""
    (environment,) = run_of(tmp_path, "meta/nonzero")["environments"]
    (tmp_path / "ranks.py").write_text(RANKS)
    command = ("--timeout", "30", "--", str(Path(environment["interpreter"]).expanduser()), "ranks.py")
    run = call(tmp_path, "run", *command, exits=(124,))
    said = [line for line in run["errors"].splitlines() if line.startswith("whichtorch: ")]
    assert ["probably stuck" in line for line in said] == [True, False]
    assert all("again and again while `not os.path.exists('/no/such/file') and rank`" in line for line in said)

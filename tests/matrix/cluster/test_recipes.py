"""The recipes of docs/cluster.md, as far as one machine can run them: Slurm with a stand-in for srun."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import Popen

import pytest
import yaml

from tests.matrix.cluster.test_engine import encrypted
from tests.patience import PATIENCE
from tests.process.running import until

ROOT = Path(__file__).parents[3]


def recipe(kind: str, words: str) -> str:
    """Return the only block of a kind in the page that holds some words."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    blocks = (block.split("```")[0] for block in page.split(f"```{kind}\n")[1:])
    (found,) = [block for block in blocks if words in block]
    return found


def prepared(folder: Path, text: str, tools: Mapping[str, str], **environ: str) -> Callable[[int], Popen[bytes]]:
    """Write a job script and stand-ins for programs, each a line of shell; return what starts a job of the array."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, line in tools.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (bin_folder / name).chmod(0o755)
    (folder / "job.sh").write_text(text)
    environ = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"} | environ
    return lambda number: Popen(["bash", str(folder / "job.sh")], env=environ | {"SLURM_ARRAY_TASK_ID": str(number)})


@pytest.mark.thorough
def test_the_jobs_of_an_array_are_workers(tmp_path: Path) -> None:
    """Each joins the scheduler, and ends when it is idle."""
    tools = {"srun": 'exec "$@"', "whichtorch": f'exec {sys.executable} -m whichtorch "$@"'}
    with encrypted(tmp_path) as (address, tls):
        text = recipe("bash", "srun whichtorch worker").replace("tls://head:8786", address)
        text = text.replace("--idle 10m", "--idle 3s").replace("$HOME/tls", str(tls))
        environ = {"SCRATCH": str(tmp_path), "PYTHONPATH": str(ROOT)}
        start = prepared(tmp_path, text, tools, **environ)
        jobs = [start(1), start(2)]
        assert until(lambda: (tmp_path / "scheduler.log").read_text().count("joined:") == 2)
        assert [job.wait(PATIENCE) for job in jobs] == [0, 0]


@pytest.mark.parametrize("count", [1, 3])
def test_the_jobs_of_an_array_share_the_environments(tmp_path: Path, count: int) -> None:
    """Without an engine, each job runs its own share, with a state folder of its own."""
    tools = {"srun": 'exec "$@"', "whichtorch": f'echo "$WHICHTORCH_HOME $*" >> {tmp_path}/ran'}
    environ = {"SLURM_ARRAY_TASK_COUNT": str(count), "SLURM_SUBMIT_DIR": str(tmp_path)}
    start = prepared(tmp_path, recipe("bash", "matrix --share"), tools, **environ)
    for number in range(1, count + 1):
        assert start(number).wait(PATIENCE) == 0
    assert (tmp_path / "ran").read_text().splitlines() == [
        f"{tmp_path}/share-{number} matrix --share {number}/{count}" for number in range(1, count + 1)
    ]


def test_the_manifest_has_the_form_of_a_deployment() -> None:
    """Its selector finds its pods, each volume is mounted, and the command is one that there is."""
    manifest = yaml.safe_load(recipe("yaml", "kind: Deployment"))
    template = manifest["spec"]["template"]
    assert manifest["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in template["spec"]["volumes"]}
    assert container["args"][:2] == ["whichtorch", "worker"]

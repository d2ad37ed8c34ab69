"""What a machine says of itself, and whether it is of a kind of hardware."""

from pathlib import Path

import pytest

from whichtorch.base.errors import PreventedError
from whichtorch.matrix import work
from whichtorch.matrix.work import Machine, check_hardware, this_machine
from whichtorch.model import Build, Config, Hardware, Request

H100 = Machine(
    host="gpu-7", arch="x86_64", cpu="AMD EPYC 9654", gpus=("NVIDIA H100 80GB HBM3",) * 2, driver="575.51.03"
)
PLAIN = Machine(host="node-1", arch="aarch64", cpu="Neoverse-N1")


@pytest.mark.parametrize(
    ("fields", "lack"),
    [
        ({"gpu": "*H100*"}, ("", "it has no GPU")),
        ({"gpu": "*A100*"}, ("its GPUs are NVIDIA H100 80GB HBM3", "it has no GPU")),
        ({"driver": ">=570"}, ("", "its driver is not known")),
        ({"driver": ">=580"}, ("its driver is 575.51.03", "its driver is not known")),
        ({"arch": "aarch64"}, ("its arch is x86_64", "")),
        ({"host": "node-*"}, ("its host is gpu-7", "")),
        ({"gpu": "*H100*", "arch": "x86_64", "cpu": "*EPYC*"}, ("", "it has no GPU")),
        ({}, ("", "")),
    ],
)
def test_every_value_that_is_named_applies(fields: dict[str, str], lack: tuple[str, str]) -> None:
    """Where one does not, it says what is there instead."""
    hardware = Hardware(name="mine", **fields)
    assert (H100.lack(hardware), PLAIN.lack(hardware)) == lack


def test_a_kind_that_this_machine_is_not_of_is_refused() -> None:
    """Without a cluster this machine is asked; with one it would be the workers."""
    build, config = Build(name="pypi"), Config(name="default")
    fits, other = Hardware(name="here", arch=this_machine().arch), Hardware(name="elsewhere", arch="vax")
    request = Request(torch="2.0.0", python="3.11", build=build, config=config)
    check_hardware([request, request.model_copy(update={"hardware": fits})])
    with pytest.raises(PreventedError, match="not of the hardware elsewhere: its arch is"):
        check_hardware([request.model_copy(update={"hardware": other})])


def test_gpus_are_what_the_driver_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several, each model and the version of their driver; a tool that fails means that there are none."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'NVIDIA H200, 575.51.03\\nNVIDIA H200, 575.51.03\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = work.this_machine.__wrapped__()
    assert (found.gpus, found.driver) == (("NVIDIA H200",) * 2, "575.51.03")
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert work.this_machine.__wrapped__().gpus == ()

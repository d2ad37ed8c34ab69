"""Take and read the stacks of a process that the tool did not start."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from whichtorch.matrix.diagnosis.hang import stack_folder
from whichtorch.matrix.diagnosis.hang.hang_diagnosis import diagnose
from whichtorch.matrix.errors import PreventedError, UsageError
from whichtorch.matrix.inspect.process_report import ProcessReport
from whichtorch.matrix.process import kernel
from whichtorch.matrix.process.evidence import capture

REMEDY = (
    "run it as root or as the process's own user; in a container, start that with --cap-add=SYS_PTRACE, and with "
    "--security-opt seccomp=unconfined where a seccomp filter forbids it; "
    "elsewhere: echo 0 | sudo tee /proc/sys/kernel/yama/ptrace_scope"
)


def inspect_process(pid: int, tools: dict[str, str] | None = None) -> ProcessReport:
    """Report what a process and all its descendants are doing. Raises WhichtorchError where that cannot be read."""
    if not kernel.HAS_PROC:
        raise PreventedError("stacks can only be taken on Linux", hint=f"run py-spy dump --native --pid {pid}")
    process = kernel.process(pid)
    if process is None or not process.is_alive:
        raise UsageError(f"there is no process {pid}")
    if pid == os.getpid():
        raise UsageError("a process cannot take its own stacks")
    pids = [pid, *(member.pid for member in kernel.Tree(pid).look(full=True) if member.is_alive)]
    tools = capture.find_tools() if tools is None else tools
    with tempfile.TemporaryDirectory(prefix="whichtorch-") as name:
        collection = capture.collect([member for member in pids if member != os.getpid()], Path(name), tools)
        processes = stack_folder.read_folder(Path(name))
    if not any(thread.frames for stacks in processes for thread in stacks.threads):
        if collection.is_refused:
            raise PreventedError(f"no permission to read the stacks of process {pid}", hint=REMEDY)
        if kernel.process(pid) is None:
            raise UsageError(f"process {pid} has ended")
    notes = collection.notes if tools else ["no collector is installed: py-spy, pystack or gdb"]
    return ProcessReport(diagnosis=diagnose(processes), processes=processes, notes=tuple(notes))

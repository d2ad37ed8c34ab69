"""Commands in forks of a process that has imported the program: the 0.3 CPU seconds that this takes are paid once."""

import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.cli.imported_program"])


def run(
    arguments: Sequence[str], folder: Path, environ: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run `whichtorch` with arguments in a folder, and return how it ended. Raises TimeoutExpired."""
    with tempfile.TemporaryDirectory() as written:
        files = [str(Path(written) / name) for name in ("stdout", "stderr")]
        process = _SERVER.Process(target=_command, args=([*arguments], str(folder), {**environ}, files))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired([*arguments], seconds, *(Path(file).read_bytes() for file in files))
        texts = [Path(file).read_text(encoding="utf-8") for file in files]
        return subprocess.CompletedProcess([*arguments], process.exitcode, *texts)


def _command(arguments: list[str], folder: str, environ: dict[str, str], files: list[str]) -> None:
    """Run a command in the forked process."""
    from whichtorch.cli import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    for name, number, file in zip(("stdout", "stderr"), (1, 2), files, strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        stream = io.TextIOWrapper(open(number, "wb", closefd=False), encoding="utf-8", write_through=number == 2)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["whichtorch", *arguments]
    try:
        main()
    finally:
        sys.stdout.flush()

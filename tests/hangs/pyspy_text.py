"""Read the text form of `py-spy dump --native`, in which some samples were taken and short stacks are easy to write.

It shows who has the GIL of active threads only. The tool itself takes the JSON form.
"""

import re

from whichtorch.hangs.stacks import Frame, Process, Thread, looks_native, native, python

_PROCESS = re.compile(r"^Process (\d+): (.*)$")
_THREAD = re.compile(r'^Thread (0x[0-9A-Fa-f]+|\d+) \((?P<status>[^)]*)\)(?:: "(?P<name>.*)")?$')
_FRAME = re.compile(r"^ {4}(?P<function>\S.*?) \((?P<where>[^()]*(?:\([^()]*\)[^()]*)*)\)$")
_PLACE = re.compile(r"^(?P<file>.*):(?P<line>\d+)$")


def parse(text: str, _pid: int = 0) -> tuple[Process, ...]:
    """Return the processes in the text form, which with --subprocesses holds several."""
    processes: list[Process] = []
    pid, command = 0, ""
    threads: list[Thread] = []

    def close() -> None:
        if pid or threads:
            processes.append(Process(pid=pid, command=command, threads=tuple(threads)))

    for line in text.splitlines():
        if header := _PROCESS.match(line):
            close()
            pid, command, threads = int(header[1]), header[2], []
        elif header := _THREAD.match(line):
            threads.append(_thread(header))
        elif threads and (frame := _FRAME.match(line)):
            last = threads[-1]
            frames = (*last.frames, _frame(frame["function"], frame["where"]))
            threads[-1] = last.model_copy(update={"frames": frames})
    close()
    return tuple(processes)


def _thread(header: re.Match[str]) -> Thread:
    words = header["status"].split("+")
    # Where it cannot tell the kernel's number it prints pthread_self() in hexadecimal.
    number, is_ident = int(header[1], 0) if header[1].startswith("0x") else int(header[1]), "x" in header[1]
    return Thread(
        tid=0 if is_ident else number,
        ident=number if is_ident else None,
        name=header["name"] or "",
        has_gil=True if "gil" in words else None,
        active="active" in words,
    )


def _frame(function: str, where: str) -> Frame:
    match = _PLACE.match(where)
    if match is None:
        return native(function, library=where)
    if looks_native(match["file"]):
        return native(function, file=match["file"], line=int(match["line"]))
    return python(function, match["file"], int(match["line"]))

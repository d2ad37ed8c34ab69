"""The tools that `whichtorch mcp` serves on standard input and output.

Each call of a tool is the command itself, in a process and a folder of its own. What a client gives are values of
options, never options. The module may not import `annotations` from `__future__`: the SDK reads the types of tools.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import Annotated, Any

import anyio
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from whichtorch.process.marks import remove_left_behind, temporary_folder

ABOUT = (
    "Runs scripts in many releases of PyTorch and says what passes, fails, hangs or crashes, and since when. A pass on "
    "the CPU says nothing about a GPU, and exit code 4 means that there is not enough evidence."
)
TEXT = 20_000  # characters at the end of what a command prints that a tool returns
# A server that is killed cannot stop the command of a call. What a killed command runs, its supervisors stop.
PROGRAM = (
    "from whichtorch.process.kernel import end_with_parent; end_with_parent({}); "
    "from whichtorch.cli import main; main()"
)
GRACE = 20.0  # seconds from SIGTERM to SIGKILL: by then a command has stopped what it runs
_VERSIONS = r"^[\w.,<>=!~*:+ -]{1,200}$"  # no path: it could name any wheel of this machine
Script = Annotated[str, Field(max_length=200_000, description="The text of a Python script.")]
Versions = Annotated[str, Field(pattern=_VERSIONS, description="Releases of torch: '2.11.0,2.15.0', '>=2.6', latest.")]
Words = Annotated[tuple[str, ...], Field(max_length=50, description="Arguments of the script.")]
Report = Annotated[
    str, Field(max_length=2_000_000, description="A bug report: Markdown, or GitHub's JSON of an issue.")
]
Version = Annotated[str, Field(pattern=r"^[\w.+]{1,50}$", description="A release of torch: '2.15.0', or latest.")]


def server(home: Path, max_seconds: float, limits: Sequence[str], *, may_read_stacks: bool) -> MCPServer:
    """Return the server with its tools. A call ends after `max_seconds`, and its command has the options `limits`.

    Calls are run one after the other: two at once would take each other's cores. Their folders are below the state
    folder, because a command reads the matrix file of the folders above its own, and anybody may write one to /tmp.
    """
    folder = home.absolute() / "calls"
    folder.mkdir(exist_ok=True)
    remove_left_behind(folder)
    tools = MCPServer("whichtorch", instructions=ABOUT)
    limit = f"--max-time={max_seconds:g}s"
    run = _CommandRunner(max_seconds, limits, home.absolute(), folder, anyio.Lock())

    @tools.tool()
    async def answer(context: Context, report: Report, newest: Version = "latest") -> dict[str, Any]:
        """Say whether a bug report is true, in which releases of torch, and since when."""
        words = ["answer", f"--newest={newest}", limit, "report.md"]
        return await run(context, {"report.md": report}, words)

    @tools.tool()
    async def matrix(context: Context, script: Script, torch: Versions, arguments: Words = ()) -> dict[str, Any]:
        """Run a script in several releases of torch: which pass, fail, hang or crash."""
        words = ["matrix", "repro.py", f"--torch={torch}", *_script_arguments(arguments)]
        return await run(context, {"repro.py": script}, words)

    @tools.tool()
    async def bisect(
        context: Context, script: Script, torch: Versions = ">=2.0", arguments: Words = ()
    ) -> dict[str, Any]:
        """Find the release of torch in which the outcome of a script changed."""
        words = ["bisect", "repro.py", f"--torch={torch}", limit, *_script_arguments(arguments)]
        return await run(context, {"repro.py": script}, words)

    @tools.tool()
    async def explain(context: Context, script: Script, torch: Versions, arguments: Words = ()) -> dict[str, Any]:
        """Say why a script fails in some releases of torch and not in others; run it in each as often as needed."""
        given = [f"--torch={torch}", *_script_arguments(arguments)]
        commands = ["matrix", "repro.py", *given], ["explain", "repro.py", "--run", *given]
        return await run(context, {"repro.py": script}, *commands)

    @tools.tool()
    async def fix(context: Context, script: Script, bad: Version, good: Version) -> dict[str, Any]:
        """Find the smallest change of torch's Python, between a failing and a passing release, that fixes a script."""
        return await run(context, {"repro.py": script}, ["fix", "repro.py", f"--bad={bad}", f"--good={good}", limit])

    @tools.tool()
    async def triage(context: Context, script: Script, torch: Version = "latest") -> dict[str, Any]:
        """Say in which layer of the compiler a script fails and what kind of failure it is, and reduce the script."""
        return await run(context, {"repro.py": script}, ["triage", "repro.py", f"--torch={torch}", limit])

    @tools.tool()
    async def stacks(context: Context, pid: Annotated[int, Field(gt=1)]) -> dict[str, Any]:
        """Say where a running process is stuck and what it waits for; only if the server was started with --stacks."""
        if not may_read_stacks:
            raise ToolError("the owner of this server does not let clients read stacks (whichtorch mcp --stacks)")
        return await run(context, {}, ["stacks", str(pid)])

    return tools


def _script_arguments(arguments: Sequence[str]) -> list[str]:
    return ["--", *arguments] if arguments else []


@dataclass(frozen=True)
class _CommandRunner:
    """Runs the commands of the tools, one at a time."""

    max_seconds: float  # of a call
    limits: Sequence[str]  # options of each command that runs scripts
    home: Path
    folder: Path  # holds a folder for each call
    turn: anyio.Lock

    async def __call__(self, context: Context, files: dict[str, str], *commands: Sequence[str]) -> dict[str, Any]:
        """Run commands in a folder with some files; return the last one's exit code, JSON, and end of its output.

        Raises the error of a tool for wrong usage, for what prevents a run, and where the time is over.
        """
        if self.turn.locked():
            await context.report_progress(0, None, "waiting for another call")
        async with self.turn:
            with temporary_folder(self.folder) as folder:
                for file, text in files.items():
                    (folder / file).write_text(text, encoding="utf-8")
                lines: list[str] = []
                with anyio.move_on_after(self.max_seconds + GRACE):
                    for command in commands:
                        lines.clear()
                        answer = await self._answer(context, command, folder, lines)
                    return answer
            shown = "\n".join(lines)[-TEXT:]
            raise ToolError(f"the call exceeded its time limit of {self.max_seconds:g} s\n{shown}")

    async def _answer(self, context: Context, command: Sequence[str], folder: Path, lines: list[str]) -> dict[str, Any]:
        split = command.index("--") if "--" in command else len(command)
        limits = () if command[0] == "stacks" else ("--events=-", *self.limits)
        words = [*command[:split], "--json=answer.json", *limits, *command[split:]]
        written = folder / "answer.json"
        written.unlink(missing_ok=True)
        async with self._process(words, folder) as process:
            await _follow(process.stdout, context, lines)
            code = await process.wait()
        text = "\n".join(lines)[-TEXT:]
        if code in {2, 3} and not written.exists():
            raise ToolError(text)
        answer = json.loads(written.read_text()) if written.exists() else None
        return {"exit_code": code, "answer": answer, "text": text}

    @contextlib.asynccontextmanager
    async def _process(self, words: list[str], folder: Path) -> AsyncIterator[Any]:
        """Start a command; at the end, or where the call is cancelled, nothing of it is left."""
        environ = os.environ | {"WHICHTORCH_HOME": str(self.home), "UV_NO_BUILD": "1", "NO_COLOR": "1"}
        command = [sys.executable, "-c", PROGRAM.format(os.getpid()), *words]
        process = await anyio.open_process(
            command, stdin=DEVNULL, stderr=STDOUT, cwd=folder, env=environ, start_new_session=True
        )
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.terminate()
                    with anyio.move_on_after(GRACE):
                        await process.wait()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.aclose()


async def _follow(stream: Any, context: Context, lines: list[str]) -> None:
    """Keep what a command prints, and pass its events on as progress."""
    rest, count = "", 0
    async for chunk in TextReceiveStream(stream, errors="replace"):
        *whole, rest = (rest + chunk).split("\n")
        for line in whole:
            try:
                event = json.loads(line) if line.startswith('{"schema"') else None
            except (ValueError, RecursionError):  # a line of a script that looks like an event
                event = None
            if event is None:
                lines.append(line)
                continue
            count += 1
            shown = (event.get(name) for name in ("event", "cell", "environment", "stage", "outcome", "value"))
            await context.report_progress(count, None, "  ".join(str(each) for each in shown if each))
    lines.append(rest)

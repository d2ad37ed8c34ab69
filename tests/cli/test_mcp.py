"""`whichtorch mcp`, asked by the SDK's own client over standard input and output, on stand-in wheels."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import psutil
import pytest

from tests.cli.shell import FAILS_IN_OLD, User, alive_in, no_torch, wait_for
from tests.cli.test_answer import report
from tests.cli.test_bisect import releases
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.thorough

SCRIPT = FAILS_IN_OLD.replace("NOTE\n", "")


wheels = pytest.fixture(no_torch)


def asked(user: User, ask: Callable[[Client], Awaitable[Any]], *options: str) -> Any:
    """Start the server and a client of it, and return what the client's questions come to."""
    from mcp import Client, StdioServerParameters  # a CPU second, which no other test needs

    async def talk() -> Any:
        words = ["-m", "whichtorch", "mcp", *options]
        server = StdioServerParameters(command=sys.executable, args=words, env=user.environ, cwd=user.folder)
        async with Client(server) as client:
            with anyio.fail_after(3 * PATIENCE):
                return await ask(client)

    return anyio.run(talk)


def called(user: User, name: str, *options: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool; return what it answers, or its message under "error"."""

    async def ask(client: Client) -> Any:
        return await client.call_tool(name, arguments)

    result = asked(user, ask, *options)
    if result.is_error:
        return {"error": result.content[0].text}
    return result.structured_content  # type: ignore[no-any-return]


def test_the_tools_are_those_that_the_page_names(user: User) -> None:
    """Each command that answers a question is a tool."""

    async def ask(client: Client) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    assert asked(user, ask) == ["answer", "matrix", "bisect", "explain", "fix", "triage", "stacks"]


def test_a_report_is_answered(user: User, wheels: Path) -> None:
    """The tool takes the text of a report."""
    releases(wheels, "oon")
    found = called(user, "answer", report=report(version="9.0.0"))

    assert (found["exit_code"], found["answer"]["verdict"]) == (0, "fixed since")


def test_a_matrix_tells_its_progress(user: User, wheels: Path) -> None:
    """Events of the command arrive as progress, and its JSON as the answer."""
    releases(wheels, "on")
    seen: list[str] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append(f"{progress} {total} {message}")

    async def ask(client: Client) -> Any:
        given = {"script": SCRIPT, "torch": "9.0.0,9.1.0"}
        return await client.call_tool("matrix", given, progress_callback=progressed)

    found = asked(user, ask).structured_content
    assert [cell["outcome"] for cell in found["answer"]["cells"]] == ["fail", "pass"]
    assert found["exit_code"] == 1
    assert any("cell" in line for line in seen)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bisect", {"torch": ">=9"}),
        ("explain", {"torch": "9.0.0,9.1.0"}),
        ("fix", {"bad": "9.0.0", "good": "9.1.0"}),
        ("triage", {"torch": "9.0.0"}),
    ],
)
def test_each_tool_answers_with_the_json_of_its_command(
    user: User, wheels: Path, name: str, arguments: dict[str, str]
) -> None:
    """What a search finds is there as the contract says."""
    releases(wheels, "on")
    found = called(user, name, script=SCRIPT, **arguments)

    assert "error" not in found, found
    assert found["exit_code"] in {0, 4}
    assert found["answer"], found["text"]


def test_stacks_are_read_only_where_the_owner_allows_it(user: User) -> None:
    """A client cannot pass the owner's limit."""
    assert "does not let clients" in called(user, "stacks", pid=1234)["error"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("matrix", {"torch": "--sandbox=off"}),
        ("matrix", {"torch": "/tmp/torch-9.0.0.whl"}),
        ("bisect", {"torch": "../wheels"}),
    ],
)
def test_no_value_becomes_an_option_a_path_or_an_address(
    user: User, wheels: Path, name: str, arguments: dict[str, Any]
) -> None:
    """What a client gives stays a value."""
    releases(wheels, "on")

    assert "error" in called(user, name, script=SCRIPT, **arguments)


def test_a_cancelled_call_leaves_no_process(user: User, wheels: Path) -> None:
    """The command and its script end when the client does not want the answer any more."""
    releases(wheels, "on")

    async def ask(client: Client) -> None:
        started = anyio.Event()

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            assert total is None or progress <= total
            if message and message.startswith("attempt-started"):
                started.set()

        async def call() -> None:
            given = {"script": "import time\ntime.sleep(600)\n", "torch": "9.0.0"}
            await client.call_tool("matrix", given, progress_callback=progressed)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await started.wait()
            while not alive_in(user.folder / ".whichtorch"):
                await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(PATIENCE):
            while alive_in(user.folder / ".whichtorch"):
                await anyio.sleep(0.05)

    asked(user, ask)


def test_a_killed_server_leaves_no_process(user: User, wheels: Path) -> None:
    """A call's command and script end with the server, and the next server removes their files."""
    releases(wheels, "on")
    state = user.folder / ".whichtorch"
    server = psutil.Popen(
        user.command("mcp"), cwd=user.folder, env=user.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with server:
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        given = {"script": "import time\ntime.sleep(600)\n", "torch": "9.0.0"}
        for message in (
            {"id": 1, "method": "initialize", "params": about},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "matrix", "arguments": given}},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()
        wait_for(lambda: any("repro.py" in line for line in alive_in(state)))
        server.kill()
    wait_for(lambda: not alive_in(state))

    async def ask(client: Client) -> None:
        await client.list_tools()

    assert list((state / "calls").iterdir())
    asked(user, ask)
    assert not list((state / "calls").iterdir())


def test_a_matrix_file_among_the_temporary_files_is_not_read(user: User, wheels: Path, tmp_path: Path) -> None:
    """Anybody on this machine may write one."""
    releases(wheels, "on")
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "whichtorch.toml").write_text("this is no matrix file")
    elsewhere = replace(user, environ=user.environ | {"TMPDIR": str(tmp_path / "public")})

    assert called(elsewhere, "matrix", script=SCRIPT, torch="9.0.0").get("exit_code") == 1


def test_calls_wait_for_each_other(user: User, wheels: Path) -> None:
    """Two calls at once are both answered, and their attempts do not overlap."""
    releases(wheels, "on")
    seen: list[tuple[str, str]] = []

    async def ask(client: Client) -> None:
        async def call(name: str) -> None:
            async def progressed(progress: float, total: float | None, message: str | None) -> None:
                assert total is None or progress <= total
                seen.append((name, str(message).partition("  ")[0]))

            given = {"script": SCRIPT, "torch": "9.0.0,9.1.0", "arguments": [name]}
            result = await client.call_tool("matrix", given, progress_callback=progressed)
            assert result.structured_content["exit_code"] == 1

        async with anyio.create_task_group() as group:
            group.start_soon(call, "one")
            group.start_soon(call, "two")

    asked(user, ask)

    assert sum(what == "waiting for another call" for _, what in seen) == 1
    attempts = [name for name, what in seen if what.startswith("attempt-")]
    assert attempts in (sorted(attempts), sorted(attempts, reverse=True))


def test_the_time_of_a_call_is_limited(user: User, wheels: Path) -> None:
    """A call that takes longer than the owner allows is stopped, and told."""
    releases(wheels, "on")
    script = "import time\ntime.sleep(600)\n"

    assert "time limit of 4 s" in called(user, "matrix", "--max-time", "4s", script=script, torch="9.0.0")["error"]


def test_without_the_sdk_the_command_says_how_to_get_it(user: User, tmp_path: Path) -> None:
    """Exit code 3 and the remedy, no traceback."""
    (tmp_path / "hidden" / "mcp").mkdir(parents=True)
    (tmp_path / "hidden" / "mcp" / "__init__.py").write_text("raise ImportError('hidden')")
    path = f"{tmp_path / 'hidden'}:{user.environ['PYTHONPATH']}"
    ended = user.run_anew("mcp", environ={"PYTHONPATH": path})

    assert (ended.returncode, "pip install -U 'whichtorch[mcp]'" in ended.stderr) == (3, True)

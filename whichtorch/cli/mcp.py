"""`whichtorch mcp`: the commands as tools of a server for the Model Context Protocol."""

from dataclasses import dataclass

from whichtorch.base.errors import PreventedError
from whichtorch.base.option import megabytes, option, seconds
from whichtorch.cli.command import state_folder
from whichtorch.process.sandbox import Sandbox


@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """The options of `mcp`: limits that no client can exceed."""

    max_seconds: float = option(
        "--max-time", default=1800.0, metavar="TIME", parse=seconds, help="How long a call may take. [default: 30m]"
    )
    disk_mb: float | None = option(
        "--disk",
        metavar="SIZE",
        parse=megabytes,
        help="Room for environments, e.g. 60GB. [default: 80 % of what is free]",
    )
    memory_mb: float = option(
        "--memory",
        default=4096.0,
        metavar="SIZE",
        parse=megabytes,
        help="How much memory a script may use, all of its processes together. [default: 4096MB]",
    )
    sandbox: Sandbox = option(default=Sandbox.BUBBLEWRAP, help="Where scripts run: bubblewrap or off.")
    may_read_stacks: bool = option(
        "--stacks", default=False, help="Let clients read the stacks of your processes, with local variables."
    )


def mcp(options: McpOptions) -> None:
    """Serve the commands to programs, by the Model Context Protocol.

    It talks on standard input and output until the client disconnects. Scripts run in a sandbox. A cancelled call stops
    what it has started. Exit code: 0 the client disconnected; 2 wrong usage; 3 the SDK is not installed, or no sandbox
    works.
    """
    from whichtorch.process.sandbox import require_sandbox

    try:
        from whichtorch.cli.tool_server import server
    except ImportError as error:  # it is missing, or another generation of it is installed
        hint = "pip install -U 'whichtorch[mcp]'"
        raise PreventedError(f"the SDK of the Model Context Protocol cannot be imported: {error}", hint=hint) from None
    if options.sandbox is not Sandbox.OFF:
        require_sandbox()
    limits = [f"--sandbox={options.sandbox}", f"--memory={options.memory_mb:g}MB"]
    limits += [f"--disk={options.disk_mb:g}MB"] if options.disk_mb else []
    server(state_folder(), options.max_seconds, limits, may_read_stacks=options.may_read_stacks).run("stdio")

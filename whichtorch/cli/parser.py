"""Build the commands of click from requests, whose fields are options, and fill requests with what a user typed.

Click is used directly because typer takes options only from a signature, and cyclopts takes twice as long to start.
"""

import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from whichtorch.base.errors import UsageError
from whichtorch.base.option import AFTER_DASHES, STDOUT, Group, Option, output_path

_HOME = re.compile(r"^(--[\w-]+=)?~(?=/|$)")
_PATHS = {"DIR", "FILE", "PATH", "PYTHON"}  # metavars of options for which a shell completes paths
_ANY_PATH = click.Path(readable=False)
LEAST_SIMILARITY = 0.8  # of a typed option and one that is suggested; --tls and --html have 0.73
OWNERS = 3  # commands that are named of those that have an option
WHOLE = "whichtorch.whole_help"  # key in click's context: all options are shown
SETTINGS = {"help_option_names": ["-h", "--help"]}


def _show_all(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    """Print the help with all options."""
    if is_asked:
        ctx.meta[WHOLE] = True
        click.echo(ctx.get_help())
        ctx.exit()


_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show all options."
)


class PanelCommand(click.Command):
    """A command whose help shows its `first` options, and all of them by panel; it expands ~ in arguments.

    Reports suggest commands with quoted paths, in which no shell expands ~.
    """

    takes_script_arguments = ""  # what follows `--`
    first: Sequence[str] = ()  # names of the options that --help shows; () for all
    request: type | None = None  # whose fields are the options

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments with ~ expanded, as in ~/a.py and --json=~/a.json; leave the script's as they are."""
        if self.takes_script_arguments and "--" in args:
            place = args.index("--")
            args, ctx.meta[AFTER_DASHES] = args[:place], tuple(args[place + 1 :])
        return super().parse_args(ctx, [_HOME.sub(lambda found: f"{found[1] or ''}{Path.home()}", arg) for arg in args])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line."""
        after = [f"[-- {self.takes_script_arguments}]"] if self.takes_script_arguments else []
        return [*super().collect_usage_pieces(ctx), *after]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, and the option that shows all of them where --help does not.

        They are made here: those of all commands take 15 ms, and one is called.
        """
        if self.request and not self.params:
            self.params = [each.parameter() for each in _option_fields(self.request)]
        return [*super().get_params(ctx), *([_ALL] if self.first else [])]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and what the command does; at length where all options are shown."""
        whole = self.help or ""
        self.help = whole if self._is_whole(ctx) else "\n\n".join(whole.split("\n\n")[:2])
        super().format_help_text(ctx, formatter)
        self.help = whole

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first options, or all, each below the heading of its panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record and self._is_whole(ctx):
                panels.setdefault(getattr(parameter, "panel", "Options"), []).append(record)
            elif record and (parameter is _ALL or any(name in self.first for name in parameter.opts)):
                panels.setdefault("Options", []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def _is_whole(self, ctx: click.Context) -> bool:
        return not self.first or WHOLE in ctx.meta


class PanelGroup(PanelCommand, click.Group):
    """A command with subcommands, in sections. It may have options of its own, for a call without a subcommand."""

    def __init__(self, *arguments: Any, **details: Any) -> None:
        super().__init__(*arguments, **details)
        self.sections: dict[str, Collection[str]] = {}  # the names of commands by heading; empty for one heading

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return the names of the commands in the order in which they were added."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the commands."""
        super().format_options(ctx, formatter)
        for title, names in (self.sections or {"Commands": self.commands}).items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].short_help or "") for name in names])


class _PanelOption(click.Option):
    """An option with the heading that it has in the help."""

    def __init__(self, *arguments: Any, panel: str, **details: Any) -> None:
        super().__init__(*arguments, **details)
        self.panel = panel


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionField:
    """A field of a request, or of a group in it, that is an option or an argument."""

    key: str  # unique in its command
    option: Option
    kind: Any
    default: object

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return get_origin(self.kind) is tuple

    @property
    def value_kind(self) -> Any:
        """The type of one value."""
        return next(kind for kind in get_args(self.kind) or (self.kind,) if kind is not type(None))

    def parameter(self) -> click.Parameter:
        """Return the parameter of click."""
        option, is_required = self.option, self.default is MISSING
        details: dict[str, Any] = {"required": is_required, "metavar": option.metavar, "help": option.help}
        if option.is_argument:
            details["metavar"] = option.metavar if is_required else f"[{option.metavar}]"
            return click.Argument([self.key], nargs=-1 if self.is_list else 1, type=_ANY_PATH, **details)
        names = option.name.split() or [f"--{self.key.rpartition('__')[2].replace('_', '-')}"]
        kind = bool if self.kind is bool else self._click_type()
        if kind is not bool and self.default not in {MISSING, None, "", ()}:
            details |= {"default": str(self.default), "show_default": True}
        # is_flag=False tells click that the value may be left out, so that one that begins with "-" is none
        details |= {"is_flag": True} if kind is bool else {}
        details |= {} if option.if_bare is None else {"is_flag": False, "flag_value": str(option.if_bare)}
        return _PanelOption([*names, self.key], type=kind, multiple=self.is_list, panel=option.panel, **details)

    def _click_type(self) -> click.ParamType[Any] | type:
        """Return the type that click checks; `value` converts further."""
        kind, option = self.value_kind, self.option
        if option.metavar in _PATHS:
            return _ANY_PATH
        if option.parse or kind not in {int, float}:
            is_choice = bool(option.choices) or (issubclass(kind, StrEnum) and not option.parse)
            return click.Choice(option.choices or tuple(map(str, kind))) if is_choice else str
        in_range: Callable[..., click.ParamType[Any]] = click.IntRange if kind is int else click.FloatRange
        return kind if option.least is None is option.most else in_range(option.least, option.most)

    def value(self, given: Any) -> object:
        """Return the value of the field, from what click has parsed."""
        if self.kind is bool:
            return not self.default
        read = self.option.parse or self.value_kind
        try:
            return tuple(map(read, given)) if self.is_list else read(given)
        except UsageError as mistake:
            raise UsageError(f"{self.parameter().opts[0]}: {mistake.message}", hint=mistake.hint) from None


def command_of(
    function: Callable[..., int | None], name: str, *, is_group: bool = False, first: Sequence[str] = (), **texts: Any
) -> PanelCommand:
    """Return a command that calls a function with its request, and exits with the code that the function returns."""
    (request,) = (kind for parameter, kind in get_type_hints(function).items() if parameter != "return")

    def call(**_given: object) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            files = [each.key for each in _option_fields(request) if each.option.parse is output_path]
            with redirect_stdout(_stream_for_people(files, context)):
                code = function(request_of(request, context)) or 0
            context.exit(code)

    texts |= {"invoke_without_command": True} if is_group else {}
    kind = PanelGroup if is_group else PanelCommand
    command = kind(name, callback=call, context_settings=SETTINGS, **texts)
    command.request = request
    command.takes_script_arguments = "".join(each.metadata.get(AFTER_DASHES, "") for each in fields(request))
    command.first = first
    return command


def _stream_for_people(files: Sequence[str], context: click.Context) -> TextIO:
    """Return the stream for people: stderr if an output file is `-`, which takes stdout; otherwise stdout."""
    given = [
        f"--{key.rpartition('__')[2].removesuffix('_file')}" for key in files if context.params[key] == str(STDOUT)
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot both go to standard output", hint="name a file for one of them")
    return sys.stderr if given else sys.stdout


def usage_error(mistake: click.ClickException) -> UsageError:
    """Return click's error in our own form: a lower-case fragment and a hint, after what was probably meant."""
    from whichtorch.suite.mistyped import SYNONYMS

    near = [*(getattr(mistake, "possibilities", None) or ())]
    if isinstance(mistake, click.NoSuchOption):  # click's matches are as unlike as --tls and --html
        longer = [option for option in near if mistake.option_name.startswith(f"{option}-")]
        near = get_close_matches(mistake.option_name, near, cutoff=LEAST_SIMILARITY) or longer
    words = mistake.message if near or isinstance(mistake, click.NoSuchOption) else mistake.format_message()
    is_near = near and sys.argv[1:2] not in [[word] for word in SYNONYMS]
    hint = f"did you mean {near[0]}?" if is_near else _meant(sys.argv[1:], mistake)
    return UsageError(words[:1].lower() + words[1:].rstrip("."), hint=hint)


def _meant(typed: Sequence[str], mistake: click.ClickException) -> str:
    """Return what to write instead of a command line that cannot be parsed."""
    from whichtorch.base.version_parsing import parse_version
    from whichtorch.suite.mistyped import SYNONYMS, is_program, probably_meant

    context: click.Context | None = getattr(mistake, "ctx", None)
    command = context.command if context else None
    path = context.command_path if context else "whichtorch"
    if isinstance(command, click.Group) and typed:
        instead, others = SYNONYMS.get(typed[0], ""), typed[1:]
        words = [*others, instead] if instead.startswith("-") else [instead, *others]
        said = f"`whichtorch {shlex.join(words)}`" if instead else probably_meant(typed, "matrix")[1]
        return f"did you mean {said}?" if said else f"see `{path} --help`"
    program = next((place for place, word in enumerate(typed[1:], 1) if is_program(word)), 0)
    if program and "--" not in typed:
        return f"did you mean `-- {shlex.join(typed[program:])}`?"
    versions = list(takewhile(parse_version, typed[typed.index("--torch") + 1 :])) if "--torch" in typed else []
    if len(versions) > 1:
        return f"did you mean --torch {','.join(versions)}?"
    is_foreign = isinstance(mistake, click.NoSuchOption) and getattr(command, "takes_script_arguments", False)
    own = "options of your own script or command stand after `--`; " if is_foreign else ""
    owners = _owners(mistake)
    return own + (f"it is an option of {', '.join(owners[:OWNERS])}" if owners else f"see `{path} --help`")


def _owners(mistake: click.ClickException) -> list[str]:
    """Return the commands that have the option that this command lacks."""
    if not isinstance(mistake, click.NoSuchOption) or mistake.ctx is None:
        return []
    root = mistake.ctx.find_root()
    if not isinstance(root.command, click.Group):
        return []
    commands = ((name, root.command.get_command(root, name)) for name in root.command.list_commands(root))
    options = {name: [word for own in each.get_params(root) for word in own.opts] for name, each in commands if each}
    return [name for name, words in options.items() if mistake.option_name in words]


def request_of(kind: type, context: click.Context, prefix: str = "") -> Any:
    """Return a request with the values from the command line, and the defaults of its fields elsewhere."""
    values: dict[str, object] = {}
    for each in fields(kind):
        key, inner = prefix + each.name, each.metadata.get("group")
        if inner:
            values[each.name] = request_of(inner.kind, context, f"{key}__")
        elif AFTER_DASHES in each.metadata:
            values[each.name] = context.meta.get(AFTER_DASHES)
        elif context.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            option = _OptionField(key=key, option=each.metadata["option"], kind=each.type, default=each.default)
            values[each.name] = option.value(context.params[key])
    return kind(**values)


def _option_fields(kind: type, group: Group | None = None, prefix: str = "") -> Iterator[_OptionField]:
    """Yield the options and arguments of a request, in the order of its fields."""
    for each in fields(kind):
        key, inner, option = prefix + each.name, each.metadata.get("group"), each.metadata.get("option")
        if group and group.only and each.name not in group.only:
            continue
        if inner:
            yield from _option_fields(inner.kind, inner, f"{key}__")
        elif option:
            yield _OptionField(key=key, option=option, kind=each.type, default=each.default)

"""Requests whose fields are options -> commands of click, with help by panel -> requests with what a user gave."""

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from whichtorch.matrix.plan.option import Group, Option

SETTINGS = {"help_option_names": ["-h", "--help"]}


class PanelCommand(click.Command):
    """A command whose help has its options by panel, and whose values may be paths that begin with ~.

    The commands that reports give have such paths within quotes, where no shell expands them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments with the user's folder instead of ~, as in ~/a.py and --script=~/a.py."""
        return super().parse_args(ctx, [re.sub(r"^(--[\w-]+=)?~(?=/|$)", rf"\g<1>{Path.home()}", arg) for arg in args])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below the headings of their panels."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and not isinstance(parameter, click.Argument):
                panels.setdefault(getattr(parameter, "panel", "Options"), []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


class PanelGroup(PanelCommand, click.Group):
    """A command with others below it, and a request of its own where none of them is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return the names of the commands in the order in which they were added."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class _PanelOption(click.Option):
    """An option that knows its heading in the help."""

    def __init__(self, *arguments: Any, panel: str, **details: Any) -> None:
        super().__init__(*arguments, **details)
        self.panel = panel


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionField:
    """A field that is an option or an argument, in a request or in a group within it."""

    key: str  # unique in its command
    option: Option
    kind: Any
    default: object

    @property
    def is_list(self) -> bool:
        """Whether it may be given several times."""
        return get_origin(self.kind) is tuple

    @property
    def value_kind(self) -> Any:
        """The type of one value."""
        return next(kind for kind in get_args(self.kind) or (self.kind,) if kind is not type(None))

    def parameter(self) -> click.Parameter:
        """Return what click reads it with."""
        option, is_required = self.option, self.default is MISSING
        details: dict[str, Any] = {"required": is_required, "metavar": option.metavar, "help": option.help}
        if option.is_argument:
            details["metavar"] = option.metavar if is_required else f"[{option.metavar}]"
            return click.Argument([self.key], nargs=-1 if self.is_list else 1, **details)
        name = option.name or f"--{self.key.rpartition('__')[2].replace('_', '-')}"
        kind = bool if self.kind is bool else self._click_type()
        if kind is not bool and self.default not in {MISSING, None, "", ()}:
            details |= {"default": str(self.default), "show_default": True}
        return _PanelOption(
            [name, self.key], type=kind, is_flag=kind is bool, multiple=self.is_list, panel=option.panel, **details
        )

    def _click_type(self) -> click.ParamType[Any] | type:
        """Return the type that click checks; `value` makes the rest."""
        kind, option = self.value_kind, self.option
        if option.parse or kind not in {int, float}:
            is_choice = issubclass(kind, StrEnum) and not option.parse
            return click.Choice(option.choices or tuple(map(str, kind))) if is_choice else str
        in_range: Callable[..., click.ParamType[Any]] = click.IntRange if kind is int else click.FloatRange
        return kind if option.least is option.most else in_range(option.least, option.most)

    def value(self, given: Any) -> object:
        """Return the field's value for what click has read."""
        if self.kind is bool:
            return not self.default
        read = self.option.parse or self.value_kind
        return tuple(map(read, given)) if self.is_list else read(given)


def command_of(function: Callable[..., int | None], name: str, *, is_group: bool, **texts: Any) -> PanelCommand:
    """Return the command that calls a function with the request that is its only parameter, and ends with its code."""
    (request,) = (kind for parameter, kind in get_type_hints(function).items() if parameter != "return")

    def call(**_given: object) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            context.exit(function(request_of(request, context)) or 0)

    texts |= {"invoke_without_command": True} if is_group else {}
    parameters = [each.parameter() for each in _option_fields(request)]
    return (PanelGroup if is_group else PanelCommand)(
        name, callback=call, params=parameters, context_settings=SETTINGS, **texts
    )


def request_of(kind: type, context: click.Context, prefix: str = "") -> Any:
    """Return a request with what was given on the command line; all else has the defaults of its fields."""
    values: dict[str, object] = {}
    for each in fields(kind):
        key, inner = prefix + each.name, each.metadata.get("group")
        if inner:
            values[each.name] = request_of(inner.kind, context, f"{key}__")
        elif context.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            option = _OptionField(key=key, option=each.metadata["option"], kind=each.type, default=each.default)
            values[each.name] = option.value(context.params[key])
    return kind(**values)


def _option_fields(kind: type, group: Group | None = None, prefix: str = "") -> Iterator[_OptionField]:
    """Yield what a request takes, in the order of its fields."""
    for each in fields(kind):
        key, inner, option = prefix + each.name, each.metadata.get("group"), each.metadata.get("option")
        if group and group.only and each.name not in group.only:
            continue
        if inner:
            yield from _option_fields(inner.kind, inner, f"{key}__")
        elif option:
            panel = group.panel if group and group.panel else option.panel
            yield _OptionField(key=key, option=replace(option, panel=panel), kind=each.type, default=each.default)

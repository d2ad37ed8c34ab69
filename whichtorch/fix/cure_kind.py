"""A cure -> how it cures, in words, where that can be told: by a setting, by less code, or beside what the script runs.

A patch that switches a feature off passes as well as one that mends it. Nothing here is a guess: what is neither a
setting nor a removal nor an early exit is said to be none of these.
"""

from __future__ import annotations

import ast
import copy
import difflib
import textwrap
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from whichtorch.fix.units import Kind, Proposal, Unit, in_order, means_the_same, statements_of
from whichtorch.source.names import defaults, dotted
from whichtorch.source.syntax import Definition, Function, parse_module

if TYPE_CHECKING:
    from whichtorch.fix.functions_run import FunctionsRun

SHOWN = 60  # characters of a value; of a longer one only the name is shown
NAMED = 3  # settings or functions that are named; more are counted
_ASSIGNMENT = ast.Assign | ast.AnnAssign | ast.AugAssign
_EXIT = ast.Return | ast.Raise | ast.Continue | ast.Break
_CONTAINERS = {"set", "frozenset", "dict", "list", "tuple"}
# calls that make a setting: of plain values, of the shell's, of a knob
_READING = {"environ.get", "getenv", "justknobs_check", "Config", "bool", "int", "float", "str"} | _CONTAINERS

COMPILER = "torch/_dynamo/"  # folder of what reads the functions that it compiles


class _CureKind(StrEnum):
    """What one unit does, as the beginning of a sentence."""

    SETTING = "it changes a setting: "
    REMOVAL = "it removes code, and adds none, in "
    EXIT = "it leaves a function early: "


def cure_kinds(cure: Proposal, good_run: FunctionsRun | None = None) -> tuple[str, ...]:
    """Return sentences on how a cure cures; none where it is code like any other.

    `good_run` is the good release's passing run, with the functions that it ran; None where nobody noted them.
    """
    telling = [unit for unit in in_order(cure.units) if not unit.name.startswith("import ") and not unit.cosmetic]
    found = [_kind_of(unit, cure) for unit in telling]
    known = [each for each in found if each is not None]
    sentences: list[str] = []
    if len(known) == len(found):  # else other code may be the cure
        said = {kind: [words for which, words in known if which is kind] for kind in _CureKind}
        sentences = [kind + _listed(words) for kind, words in said.items() if words]
    if good_run is not None and _is_beside(telling, good_run):
        sentences.append(
            "none of its functions runs in the good release's passing run once torch is imported, "
            "so it may go around the failure rather than mend it"
        )
    return tuple(sentences)


def brings_functions(unit: Unit) -> bool:
    """Return whether a run can tell whether a unit was reached: it brings a function, or a class with some."""
    return not unit.cosmetic and any(isinstance(node, Definition) and node.body for node in unit.nodes)


def _is_beside(units: Sequence[Unit], run: FunctionsRun) -> bool:
    """Return whether a run that passed reached no function of these units; False where that is not known."""
    functions = [unit for unit in units if brings_functions(unit)]
    is_read = any(path.startswith(COMPILER) for path in run.active)  # a compiler reads functions without running them
    is_known = run.passed and bool(run.functions) and not is_read
    return is_known and bool(functions) and all(run.place(unit.path, unit.good) is None for unit in functions)


def _listed(words: Sequence[str]) -> str:
    return "; ".join(words[:NAMED]) + (f"; and {len(words) - NAMED} more" if len(words) > NAMED else "")


def _kind_of(unit: Unit, cure: Proposal) -> tuple[_CureKind, str] | None:
    """Return what a unit of a cure does, and the words for it; None for code like any other."""
    text, old = cure.text(unit), unit.bad.nodes if unit.bad else ()
    new = statements_of(text) if unit in cure.drafts else unit.nodes
    before, after = (nodes[0] if len(nodes) == 1 else None for nodes in (old, new))
    if words := _setting(unit, before, after):
        return _CureKind.SETTING, words
    if unit.kind is Kind.REMOVED or (unit.kind is Kind.CHANGED and _only_removes(unit.before, text)):
        return _CureKind.REMOVAL, f"`{unit.name}`"
    if isinstance(before, Function) and isinstance(after, Function) and (words := _early_exit(unit, text)):
        return _CureKind.EXIT, words
    return None


def _setting(unit: Unit, before: ast.stmt | None, after: ast.stmt | None) -> str:
    """Return which setting a unit changes, "" where it is none."""
    if isinstance(after, _ASSIGNMENT) and (before is None or isinstance(before, _ASSIGNMENT)):
        values = [node.value for node in (before, after) if node is not None]
        return _assignment(before, after, unit.owner) if all(map(_is_plain, values)) else ""
    if isinstance(before, Function) and isinstance(after, Function) and means_the_same(_core(before), _core(after)):
        name = unit.name
        old, new = ({key: ast.unparse(value) for key, value in defaults(node.args).items()} for node in (before, after))
        words = [
            f"`{name}({_argument(key, old)})` becomes `{name}({_argument(key, new)})`"
            for key in dict.fromkeys([*old, *new])
            if _argument(key, old) != _argument(key, new)
        ]
        decorators = [[ast.unparse(each) for each in node.decorator_list] for node in (before, after)]
        if not set(decorators[1]) <= set(decorators[0]):  # one that is new may do anything
            return ""
        words += [f"`@{each}` of `{name}` is gone" for each in decorators[0] if each not in decorators[1]]
        return "; ".join(words)
    return ""


def _assignment(before: _ASSIGNMENT | None, after: _ASSIGNMENT, owner: str) -> str:
    target = after.targets[0] if isinstance(after, ast.Assign) else after.target
    name = f"{owner}.{ast.unparse(target)}" if owner else ast.unparse(target)
    old, new = (_value(node) for node in (before, after))
    if old == new:  # it only moves
        return ""
    if max(len(old), len(new)) > SHOWN:
        return f"`{name}`"
    return f"`{name} = {old}` becomes `{new}`" if before is not None else f"`{name} = {new}` is new"


def _value(node: _ASSIGNMENT | None) -> str:
    return ast.unparse(node.value) if node is not None and node.value else ""


def _is_plain(value: ast.expr | None) -> bool:
    """Return whether a value is no code: whatever it calls only reads or holds plain values."""
    if value is None:
        return False
    calls = [".".join(dotted(node.func).split(".")[-2:]) for node in ast.walk(value) if isinstance(node, ast.Call)]
    is_read = all(call in _READING or call.rpartition(".")[2] in _READING for call in calls)
    return is_read and not any(isinstance(node, ast.Lambda) for node in ast.walk(value))


def _core(node: Function) -> ast.stmt:
    """Return a function without its defaults and decorators."""
    bare = copy.deepcopy(node)
    bare.args.defaults, bare.args.kw_defaults, bare.decorator_list = [], [], []
    return bare


def _argument(name: str, defaults: dict[str, str]) -> str:
    return f"{name}={defaults[name]}" if name in defaults else name


def _only_removes(*texts: str) -> bool:
    """Return whether all lines of code that are left were there before, in this order.

    Indentation does not count, because code that a condition no longer guards is dedented.
    """
    stripped = [[line.strip() for line in text.splitlines()] for text in texts]
    before, after = ([line for line in lines if line and not line.startswith("#")] for lines in stripped)
    left = iter(before)
    return len(after) < len(before) and all(line in left for line in after)


def _early_exit(unit: Unit, text: str) -> str:
    """Return how a function is left before its end now, "" where anything else changes."""
    before, after = unit.before.splitlines(), text.splitlines()
    exits = []
    for kind, _, _, first, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        block = _exits("\n".join(after[first:end])) if kind == "insert" else []
        following = next((line for line in after[end:] if line.strip()), "")
        if not block or _indent(following) != _indent(next(line for line in after[first:end] if line.strip())):
            return ""  # what stands last in its block leaves nothing out
        exits += block
    return "; ".join(f"`{' '.join(words.split())}` in `{unit.name}`" for words in exits)


def _exits(text: str) -> list[str]:
    """Return the statements of a text, none where one of them does not leave: alone, or as all that an `if` does."""
    try:
        nodes = parse_module(textwrap.dedent(text)).body
    except SyntaxError:
        return []
    inner = [node.body if isinstance(node, ast.If) and not node.orelse else [node] for node in nodes]
    is_left = all(len(body) == 1 and isinstance(body[0], _EXIT) for body in inner)
    return [ast.unparse(node) for node in nodes] if is_left else []


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

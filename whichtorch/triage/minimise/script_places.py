"""What is noted of a script as it runs: the values at the places where it was when it failed.

Calls are put before the statements, rather than a trace function into the interpreter: that would make the import of a
compiler take a minute. The script has to run with nothing compiled, because a compiler would read the calls as well.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from whichtorch import inside
from whichtorch.source.names import GIVEN, bound, dotted, loads_in, parameters, stores_in
from whichtorch.source.syntax import Function, blocks_of, in_head, is_docstring, parse_module
from whichtorch.triage.minimise.tree_edit import copied

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ROWS = (1, 2, 4)  # how many statements, up to the one that failed, are tried alone
_NOTE_VALUES = "_whichtorch_values"
_VALUES_PRELUDE = """\
def {name}(place, names, recorders=[]):
    if not recorders:
        import runpy
        recorders.append(runpy.run_path({recorder!r})["Recorder"]({file!r}, {paths!r}))
    recorders[0].record(place, names)
"""


def with_prelude(tree: ast.Module, prelude: str) -> str:
    """Return the text of a tree with a prelude after the statements that must stay first. Changes the tree."""
    head = first_statements(tree)
    tree.body = [*head, *parse_module(prelude).body, *(node for node in tree.body if node not in head)]
    return ast.unparse(ast.fix_missing_locations(tree))


def first_statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the docstring and the imports from `__future__`, which must stay before all others."""
    head = [node for node in tree.body[:1] if is_docstring(node)]
    return head + [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPlace:
    """A piece of a script that can stand alone."""

    key: str
    before: ast.stmt  # values are recorded before this statement
    body: list[ast.stmt]  # the piece
    parameters: tuple[str, ...] = ()  # of the function that it is; none where it is a statement
    is_compiled: bool  # a compiler was reading it when it failed

    def paths(self, defined: frozenset[str]) -> list[str]:
        """Return what the piece reads and does not define: names, and names with attributes, shortest first."""
        own = bound(self.body) - set(self.parameters) if self.parameters else set[str]()
        return sorted(
            {
                ".".join(parts[:length])
                for parts in (dotted(chain).split(".") for chain in outermost_chains(self.body))
                if parts[0] not in own and parts[0] not in defined and parts[0] not in GIVEN
                for length in range(1, len(parts) + 1)
            }
        )


class ScriptPlaces:
    """The places where a script was when it failed, the innermost first. Raises SyntaxError, ValueError.

    `raised` are the lines on its stack, `compiled` those that a compiler was reading, each the innermost last.
    """

    def __init__(self, source: str, raised: Sequence[int], compiled: Sequence[int]) -> None:
        self.tree = parse_module(source)
        self.defined = frozenset(
            name for statement in self.tree.body if isinstance(statement, DEFINITIONS) for name in bound([statement])
        )
        self.assigned = stores_in(*(each for each in self.tree.body if isinstance(each, (ast.Assign, ast.AnnAssign))))
        self.registering = registering(self.tree, next(iter(raised), 0))
        self.places = list(self._found([*((line, False) for line in raised), *((line, True) for line in compiled)]))

    def recording(self, file: str) -> str:
        """Return the script, writing down what its places read."""
        placed: dict[ast.AST, list[ast.stmt]] = {place.before: [place.before] for place in self.places}
        for place in self.places:
            call = parse_module(f"{_NOTE_VALUES}({place.key!r}, {{**globals(), **locals()}})").body
            placed[place.before] = [*call, *placed[place.before]]
        paths = {place.key: place.paths(self.defined) for place in self.places}
        prelude = _VALUES_PRELUDE.format(
            name=_NOTE_VALUES, recorder=str(inside.path("described_values.py")), file=file, paths=paths
        )
        return with_prelude(copied([self.tree], placed, math.inf)[0], prelude)

    def _found(self, lines: Sequence[tuple[int, bool]]) -> Iterator[ScriptPlace]:
        done = set[int]()
        for line, is_compiled in reversed(lines):
            block, statement = _innermost(self.tree, line)
            if statement is None or id(statement) in done:
                continue
            done.add(id(statement))
            end = block.index(statement) + 1
            for length in (length for length in ROWS if length <= end):
                row = block[end - length : end]
                if not any(isinstance(each, DEFINITIONS) for each in row):
                    key = f"{line} -{length}"
                    yield ScriptPlace(key=key, before=row[0], body=row, is_compiled=is_compiled)
            function = _around(self.tree, line)
            if function is not None and id(function) not in done:
                done.add(id(function))
                body = [each for each in function.body if not is_docstring(each)]
                yield ScriptPlace(
                    key=f"{line} all",
                    before=body[0],
                    body=body,
                    parameters=tuple(parameter.arg for parameter in parameters(function)),
                    is_compiled=is_compiled,
                )


def _innermost(tree: ast.Module, line: int) -> tuple[list[ast.stmt], ast.stmt | None]:
    """Return the statement that was under way at a line, and its block; a definition is none."""
    found: tuple[list[ast.stmt], ast.stmt | None] = ([], None)
    for block in blocks_of(tree):
        for statement in block:
            head = [statement.lineno, *(getattr(node, "end_lineno", 0) or 0 for node in in_head(statement))]
            if not isinstance(statement, DEFINITIONS) and statement.lineno <= line <= max(head):
                found = (block, statement)
    return found


def _around(tree: ast.Module, line: int) -> Function | None:
    """Return the innermost function that a line is in."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, Function) and node.lineno < line <= (node.end_lineno or node.lineno)
    ]
    return max(functions, key=lambda node: node.lineno, default=None)


def outermost_chains(body: Sequence[ast.stmt]) -> Iterator[ast.Attribute | ast.Name]:
    """Yield each name that is read, with the attributes after it."""

    def walk(node: ast.AST) -> Iterator[ast.Attribute | ast.Name]:
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load) and dotted(node):
            yield node
            return
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    for statement in body:
        yield from walk(statement)


def needed_by(piece: ast.Module, tree: ast.Module, always: Collection[ast.stmt] = ()) -> str:
    """Return the statements of a script that bind what a piece reads, always with `import torch` and `always`."""
    needed = {*loads_in(piece), "torch"}
    kept: list[ast.stmt] = []
    for statement in reversed(tree.body):
        is_binding = isinstance(statement, (*DEFINITIONS, ast.Assign, ast.AnnAssign)) and bound([statement]) & needed
        if is_binding or statement in always:
            kept.append(statement)
            needed |= loads_in(statement).keys()
    texts = [ast.unparse(statement) for statement in reversed(kept)]
    return "".join(f"{text}\n" for text in (texts if "import torch" in texts else ["import torch", *texts]))


def registering(tree: ast.Module, line: int) -> list[ast.stmt]:
    """Return the statements before a line that affect code without being named: operators, settings of torch."""
    before = itertools.takewhile(lambda statement: (statement.end_lineno or 0) < line, tree.body)
    return [statement for statement in before if _acts(statement)]


def _acts(statement: ast.stmt) -> bool:
    match statement:
        case ast.FunctionDef(decorator_list=decorators) if decorators:
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Expr():
            return not is_docstring(statement)
        case _:
            return False

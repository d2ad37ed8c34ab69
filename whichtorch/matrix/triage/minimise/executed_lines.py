"""A script that writes down which of its lines run, each once.

Calls are put before the statements, rather than a trace function into the interpreter: that would make the import of a
compiler take a minute. The script has to run with nothing compiled, because a compiler would read the calls as well.
"""

from __future__ import annotations

import ast
import math

from whichtorch.matrix.source.syntax import is_docstring, parse_module, statements_in
from whichtorch.matrix.triage.minimise.tree_edit import copied

_NAME = "_whichtorch_line"
_PRELUDE = """\
def {name}(number, seen=set(), file=open({path!r}, "a", buffering=1)):
    if number not in seen:
        seen.add(number)
        file.write(f"{{number}}\\n")
"""


def instrumented(source: str, path: str) -> str | None:
    """Return a script that writes the numbers of its lines into a file as they run; None for what cannot be read."""
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError):
        return None
    head = first_statements(tree)
    calls: dict[ast.AST, list[ast.stmt]] = {
        each: [_call(each.lineno), each] for each in statements_in(tree) if each not in head
    }
    return with_prelude(copied([tree], calls, math.inf)[0], _PRELUDE.format(name=_NAME, path=path))


def _call(line: int) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(_NAME, ast.Load()), [ast.Constant(line)], []))


def with_prelude(tree: ast.Module, prelude: str) -> str:
    """Return the text of a tree with a prelude after the statements that must stay first. Changes the tree."""
    head = first_statements(tree)
    tree.body = [*head, *parse_module(prelude).body, *(node for node in tree.body if node not in head)]
    return ast.unparse(ast.fix_missing_locations(tree))


def first_statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the docstring and the imports from `__future__`, which must stay before all others."""
    head = [node for node in tree.body[:1] if is_docstring(node)]
    return head + [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]

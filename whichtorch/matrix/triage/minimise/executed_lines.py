"""A script that writes down which of its lines run, each once.

Calls are put before the statements, rather than a trace function into the interpreter: that would make the import of a
compiler take a minute. The script has to run with nothing compiled, because a compiler would read the calls as well.
"""

from __future__ import annotations

import ast

from whichtorch.matrix.triage.minimise.prelude import first_statements, with_prelude

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
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    head = first_statements(tree)
    tree.body = [node for node in tree.body if node not in head]
    noting = _Noting().visit(tree)
    noting.body = [*head, *noting.body]
    return with_prelude(noting, _PRELUDE.format(name=_NAME, path=path))


class _Noting(ast.NodeTransformer):
    """Puts a call before each statement of each body."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and all(isinstance(each, ast.stmt) for each in value):
                setattr(node, name, [part for each in value for part in (_call(each.lineno), each)])
        return node


def _call(line: int) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(_NAME, ast.Load()), [ast.Constant(line)], []))

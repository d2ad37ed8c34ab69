"""A script that writes down which of its lines run, each once.

Calls are put before the statements, rather than a trace function into the interpreter: that would make the import of a
compiler take a minute. The script has to run with nothing compiled, because a compiler would read the calls as well.
"""

from __future__ import annotations

import ast

from whichtorch.matrix.source.syntax import statements_in
from whichtorch.matrix.triage.minimise.prelude import first_statements, with_prelude
from whichtorch.matrix.triage.minimise.tree_edit import rewritten

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
    calls = {each: [_call(each.lineno), each] for each in statements_in(tree) if each not in head}
    return with_prelude(rewritten(tree, calls), _PRELUDE.format(name=_NAME, path=path))


def _call(line: int) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(_NAME, ast.Load()), [ast.Constant(line)], []))

"""A script with lines of the tool's own before all others."""

from __future__ import annotations

import ast

from whichtorch.matrix.source.syntax import is_docstring


def with_prelude(tree: ast.Module, prelude: str) -> str:
    """Return the text of a tree with other lines at its beginning, after what must stay first. Changes the tree."""
    head = first_statements(tree)
    tree.body = [*head, *ast.parse(prelude).body, *(node for node in tree.body if node not in head)]
    return ast.unparse(ast.fix_missing_locations(tree))


def first_statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the docstring and the imports from `__future__`, which must stay before all others."""
    head = [node for node in tree.body[:1] if is_docstring(node)]
    return head + [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]

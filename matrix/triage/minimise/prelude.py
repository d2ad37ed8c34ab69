"""A script with lines of the tool's own before all others."""

from __future__ import annotations

import ast


def with_prelude(tree: ast.Module, prelude: str) -> str:
    """Return the text of a tree with other lines at its beginning, after what must stay first. Changes the tree."""
    head = [node for node in tree.body[:1] if _is_docstring(node)]
    head += [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    rest = [node for node in tree.body if node not in head]
    tree.body = [*head, *ast.parse(prelude).body, *rest]
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

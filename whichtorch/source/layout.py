"""Where the nodes of a tree stand: in which statement and scope, and where each name is read and bound."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, count
from typing import TYPE_CHECKING

from whichtorch.source.names import stores_in
from whichtorch.source.syntax import Scope

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Where the nodes of a tree stand."""

    tree: ast.Module

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What each node stands in."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def loads(self) -> dict[str, list[ast.Name]]:
        """Where each name is read."""
        return self._names(ast.Load)

    @cached_property
    def assigned(self) -> dict[str, list[ast.Name]]:
        """Where each name is assigned."""
        return self._names(ast.Store)

    def _names(self, context: type[ast.expr_context]) -> dict[str, list[ast.Name]]:
        found = defaultdict(list)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, context):
                found[node.id].append(node)
        return found

    @cached_property
    def stores(self) -> Counter[str]:
        """How often each name is bound, in whatever scope."""
        return stores_in(self.tree)

    def outward(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, from the inside out."""
        while (found := self.parents.get(node)) is not None:
            node = found
            yield node

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the innermost statement that a node stands in, or is."""
        return next((each for each in (node, *self.outward(node)) if isinstance(each, ast.stmt)), None)

    def scope(self, node: ast.AST) -> Scope:
        """Return the function, class or module that a node stands in."""
        return next((each for each in self.outward(node) if isinstance(each, Scope)), self.tree)

    def times_bound(self, name: str, place: ast.AST) -> int:
        """Return how often the scope that a node stands in assigns a name."""
        scope = self.scope(place)
        return sum(self.scope(node) is scope for node in self.assigned.get(name, ()))

    def reads(self, name: str, place: ast.AST) -> list[ast.Name]:
        """Return where a name is read that the scope of a node binds, in that scope and in those that see it."""
        own = self.scope(place)
        found = [(node, self.scope(node)) for node in self.loads.get(name, ())]
        return [node for node, scope in found if scope is own or not stores_in(scope)[name]]

    def is_inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Return whether a node is within another, or that itself."""
        return node is outer or any(each is outer for each in self.outward(node))

    def fresh(self, name: str, taken: Iterable[str] = ()) -> str:
        """Return a name like this that nothing in the tree has."""
        used = {*self.loads, *self.stores, *taken}
        numbered = (f"{name}_{number}" for number in count(2))
        return next(each for each in chain([name], numbered) if each not in used)


@lru_cache(maxsize=4)
def layout_of(tree: ast.Module) -> Layout:
    """Return where the nodes of a tree stand, found once for all that look at it in a row."""
    return Layout(tree=tree)

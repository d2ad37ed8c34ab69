"""What can be searched: releases, days, packages, values, commits."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model.events import Show


def search(request: SearchRequest, environments: EnvironmentCache, show: Show) -> Bisection:
    """Search the axis of a request. Its module is imported here, because other commands start without it."""
    is_laid = request.source is not None and request.source.command is None
    module = "commit_line" if is_laid else request.axis.row.module
    bisection: Bisection = import_module(f"{__name__}.{module}").search(request, environments, show)
    return bisection

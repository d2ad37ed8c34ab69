"""The releases or nightlies of torch as an axis: one build, Python and config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.version_parsing import parse_version
from whichtorch.bisect.attribution import with_attributions
from whichtorch.bisect.driver import search_between
from whichtorch.bisect.search_request import Axis, AxisName, common
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.expansion import expand
from whichtorch.environments.index.releases import EVERY_RELEASE, find

if TYPE_CHECKING:
    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.provider import Environments
    from whichtorch.model.events import Show


def search(request: SearchRequest, cache: Environments, show: Show) -> Bisection:
    """Search the versions that the request's matrix file names.

    Raises UsageError or PreventedError where there is nothing to search; KeyboardInterrupt passes through.
    """
    expansion = expand(request.file, cache=request.home / "cache")
    usable = [each for each in expansion.requests if each.problem is None]
    if len(usable) < 2 and (problems := [each.problem for each in expansion.requests if each.problem]):
        raise PreventedError(problems[0])
    if len(usable) < 2:
        named = f"only {usable[0].torch}" if usable else "nothing"
        raise UsageError(f"there is {named} to search", hint="name a wider range with --torch, such as '>=2.6'")
    first, is_listed = usable[0], all(parse_version(each.torch) for each in usable)  # not so a wheel of the user's
    released = find(EVERY_RELEASE, first.build, first.python, request.home / "cache")[0] if is_listed else {}
    axis = Axis(
        name=AxisName.VERSION,
        values=tuple(each.torch for each in usable),
        requests=tuple(usable),
        released=tuple(released),
        common=common(first),
    )
    with workbench(request, cache, show) as bench:
        bisection = with_attributions(search_between(request, axis, bench), axis, request, bench)
    # the notes say what was yanked
    return bisection.model_copy(update={"reasons": (*expansion.notes, *bisection.reasons)})

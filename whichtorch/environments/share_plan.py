"""What a CI service needs to know to give each of its jobs a share of the environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import Field

from whichtorch.base.errors import UsageError
from whichtorch.environments.additions import Share
from whichtorch.model import Model, Request

SCHEMA = 1
MOST_JOBS = 256  # that GitHub makes of one matrix
MOST_CACHES = 32  # in GitHub's 10 GB a repository: torch's CPU wheel and its dependencies take about 0.3 GB
CACHED_BUILD = "cpu"  # CUDA's libraries take gigabytes a release, and a nightly's wheel is never asked for again


class ListedEnvironment(Model):
    """An environment of the plan."""

    label: str
    options: tuple[str, ...]  # of `matrix`: they ask for just this environment


class ListedShare(Model):
    """What one job does."""

    share: str  # "2/4", for `matrix --share`
    name: str  # of the job
    environments: tuple[str, ...]  # their labels
    cache: str  # names the wheels that are worth keeping for the next night; "" for none


class SharePlan(Model):
    """What `plan --json` writes."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    environments: tuple[ListedEnvironment, ...]
    shares: tuple[ListedShare, ...]

    @classmethod
    def of(cls, requests: Sequence[Request], count: int | None) -> Self:
        """Divide environments into shares; by default, one environment a share, up to MOST_JOBS.

        Raises UsageError if there are none: a job that runs nothing would look green.
        """
        if not requests:
            raise UsageError("the matrix file asks for no environments", hint="look at its [[exclude]] tables")
        count = min(count or MOST_JOBS, len(requests))
        are_kept = len({_cache(request) for request in requests}) <= MOST_CACHES
        shares = [Share(number, count) for number in range(1, count + 1)]
        return cls(
            environments=tuple(ListedEnvironment(label=each.label, options=each.options) for each in requests),
            shares=tuple(_listed(share, share.of(requests), are_kept=are_kept) for share in shares),
        )


def _listed(share: Share, requests: Sequence[Request], *, are_kept: bool) -> ListedShare:
    labels = tuple(request.label for request in requests)
    more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    cache = _cache(requests[0]) if are_kept else ""
    return ListedShare(share=str(share), name=labels[0] + more, environments=labels, cache=cache)


def _cache(request: Request) -> str:
    """Return the cache name of an environment's wheels; environments that differ only in config share it."""
    if request.build.name != CACHED_BUILD:
        return ""
    return "-".join(["wheels", request.torch, request.build.name, *([request.python] if request.show_python else ())])

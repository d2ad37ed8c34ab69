"""Share out the environments of `nox -l --json -s env`, read from standard input, among the jobs of a CI service.

Needs only the standard library: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass

JOBS = 256  # GitHub makes no more of one matrix
CACHES = 32  # of GitHub's 10 GB a repository: torch's CPU wheel with what it needs takes about 0.3 GB
CACHED_BUILD = "cpu"  # CUDA's libraries take gigabytes a release, and a nightly's wheel is never asked for again


class PlanError(Exception):
    """There is nothing to plan with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEnvironment:
    """An environment of the matrix file, as nox lists it."""

    session: str  # "env(torch-2.15.0-cpu)"
    options: tuple[str, ...]  # of `matrix`, that ask for just this environment

    @property
    def label(self) -> str:
        """What people call it."""
        return self.session.removeprefix("env(").removesuffix(")")

    @property
    def cache(self) -> str:
        """Names the wheels it takes, which those that differ in their config share; empty where none are kept."""
        chosen = dict(zip(self.options[::2], self.options[1::2], strict=False))
        if chosen.get("--build") != CACHED_BUILD:
            return ""
        return "-".join(["wheels", *(value for name, value in chosen.items() if name != "--config")])


def read(text: str) -> list[ListedEnvironment]:
    """Return the environments that nox listed in its last line. Raises PlanError where there are none."""
    try:
        listed = json.loads(text.strip().rpartition("\n")[2])  # without uv, pip's words come before it
        found = [
            ListedEnvironment(session=session["session"], options=tuple(session["call_spec"]["options"]))
            for session in listed
            if session["name"] == "env"
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise PlanError("this is not what `nox -l --json -s env` writes") from error
    if not found:
        raise PlanError("no environments are listed: nox says above why, or the matrix file asks for none")
    return found


def shares(environments: list[ListedEnvironment], jobs: int) -> list[list[ListedEnvironment]]:
    """Return the environments of each job: none without any, their numbers alike, neighbours together."""
    number, jobs = len(environments), min(jobs, len(environments))
    return [environments[job * number // jobs : (job + 1) * number // jobs] for job in range(jobs)]


def job_matrix(environments: list[ListedEnvironment]) -> dict[str, list[dict[str, str]]]:
    """Return the matrix of a GitHub job: what each is called, its sessions by line, and which cache it uses."""
    is_cached = len({environment.cache for environment in environments}) <= CACHES
    rows = []
    for share in shares(environments, JOBS):
        more = f" and {len(share) - 1} more" if len(share) > 1 else ""
        sessions = "\n".join(environment.session for environment in share)
        cache = share[0].cache if is_cached else ""
        rows.append({"name": f"{share[0].label}{more}", "sessions": sessions, "cache": cache})
    return {"include": rows}


def sessions_of(environments: list[ListedEnvironment], share: str) -> list[str]:
    """Return the sessions of one job of several, "3/8"; none where there are more jobs than environments."""
    job, jobs = (int(number) for number in share.split("/"))
    given = shares(environments, jobs)
    return [environment.session for environment in given[job - 1]] if job <= len(given) else []


def main() -> None:
    """Write the matrix of a GitHub job, or with --share I/N the sessions of one of N jobs, one a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", metavar="I/N", help="write the sessions of the I-th of N jobs, one a line")
    share = parser.parse_args().share
    try:
        environments = read(sys.stdin.read())
    except PlanError as error:
        sys.exit(f"error: {error}")
    for line in sessions_of(environments, share) if share else [json.dumps(job_matrix(environments))]:
        print(line)


if __name__ == "__main__":
    main()

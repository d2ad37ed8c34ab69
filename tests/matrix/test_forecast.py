"""What a run will take, as it is told before anything is installed."""

import json
from pathlib import Path

from whichtorch.environments.cache import EnvironmentCache
from whichtorch.matrix.forecast import Forecast
from whichtorch.matrix.planning import RunOptions, _joined, plan
from whichtorch.matrix.site import ThisMachine
from whichtorch.model import Build, Config, Expectation, Outcome, Request, Scenario
from whichtorch.records.line_index import Records

CPU, PYPI = Build(name="cpu"), Build(name="pypi")


GUESS = ", longer if a test that never ran takes more than 3 s"  # of cells that nobody has timed


def request(torch: str, build: Build, config: str = "default") -> Request:
    return Request(torch=torch, python="3.11", build=build, config=Config(name=config))


def scenario(name: str, *expect: Expectation, **fields: float) -> Scenario:
    return Scenario(name=name, path=Path(name), source_hash=name, expect=expect, timeout=fields.get("timeout", 60))


def lines(home: Path, requests: list[Request], suite: list[Scenario], jobs: int = 2) -> list[str]:
    """Return what is told of a plan, with nothing recorded."""
    planned = plan(requests, suite, RunOptions())
    forecast = Forecast.of(planned, ThisMachine.of(EnvironmentCache(home), jobs), Records())
    return list(forecast.lines())


def test_what_is_left_follows_the_pace(tmp_path: Path) -> None:
    """At first it is what was expected; a run that turns out twice as slow is expected to go on so."""
    planned = plan([request("2.11.0", CPU)], [scenario(f"family/{number}") for number in range(200)], RunOptions())
    forecast = Forecast.of(planned, ThisMachine.of(EnvironmentCache(tmp_path), 1), Records())
    assert forecast.time_left(0.0) == f"about {round(forecast.seconds / 60)} minutes left"
    forecast.done = forecast.seconds * 0.9
    assert forecast.time_left(forecast.seconds * 1.8) == f"about {round(forecast.seconds * 0.19 / 60)} minutes left"


def installed(home: Path, of: Request, megabytes: int, seconds: float) -> None:
    """Leave what an install leaves that was evicted since."""
    folder = home / "envs" / of.install_key
    folder.mkdir(parents=True)
    package = {"name": "torch", "version": of.torch, "size": megabytes * 10**6, "inode": 0, "digest": ""}
    kept: dict[str, object] = {"label": of.label, "build": of.build.name, "python": "3.11.7", "watched": []}
    kept |= {"packages": [package], "seconds": seconds}
    (folder / "installation.json").write_text(json.dumps(kept))


def test_from_nothing(tmp_path: Path) -> None:
    """Sizes and durations are the usual ones; configs of one torch share an install."""
    requests = [request("2.11.0", PYPI), request("2.11.0", PYPI, "iomp"), request("2.12.0", PYPI)]
    suite = [scenario(f"family/{number}") for number in range(40)]
    assert lines(tmp_path, requests, suite) == [
        "3 environments, 120 cells; installs about 10 GB; about 3 minutes with 2 jobs" + GUESS
    ]
    assert lines(tmp_path, [request("2.11.0", CPU)], suite[:1], jobs=1) == [
        "1 environment, 1 cell; installs about 1 GB; about 30 seconds with 1 job" + GUESS
    ]


def test_the_runs_of_a_chain_count(tmp_path: Path) -> None:
    """A cell takes as long as all of its runs; where another environment writes the caches, that is installed, too."""
    chain = scenario("family/a").model_copy(update={"variants": {"runs": ("30",)}})
    assert lines(tmp_path, [request("2.11.0", CPU)], [chain], jobs=1) == [
        "1 environment, 1 cell; installs about 1 GB; about 2 minutes with 1 job" + GUESS
    ]
    requests = [request("2.11.0", CPU), request("2.12.0", CPU)]
    planned = _joined([(requests, [scenario("family/a")])], RunOptions(runs=2), "2.11.0")
    forecast = Forecast.of(planned, ThisMachine.of(EnvironmentCache(tmp_path), 1), Records())
    assert next(forecast.lines()).startswith("2 environments, 1 cell; installs about 2 GB; ")


def test_earlier_installs_tell_more(tmp_path: Path) -> None:
    """An environment takes what it took before, another of its build as much, and an install as long as before."""
    installed(tmp_path, request("2.11.0", CPU), 3000, 400.0)
    requests = [request("2.11.0", CPU), request("2.12.0", CPU)]
    assert lines(tmp_path, requests, [scenario("family/a", timeout=1)]) == [
        "2 environments, 2 cells; installs about 6 GB; about 7 minutes with 2 jobs" + GUESS
    ]


def test_known_bugs_are_announced(tmp_path: Path) -> None:
    """Cells that a header expects to go wrong in these releases are counted before they are seen to."""
    hangs = Expectation(outcome=Outcome.HANG, torch="<2.12")
    requests = [request("2.11.0", CPU), request("2.12.0", CPU)]
    suite = [scenario("family/a", hangs), scenario("family/b"), scenario("family/c", Expectation(outcome=Outcome.SKIP))]
    assert lines(tmp_path, requests, suite)[1:] == ["1 of them shows a known bug and is expected to fail or hang"]
    assert lines(tmp_path, requests, [*suite, scenario("family/d", hangs)])[1:] == [
        "2 of them show known bugs and are expected to fail or hang"
    ]


def test_what_cannot_be_installed_costs_nothing(tmp_path: Path) -> None:
    """An environment that planning has given up counts, but neither disk nor time is told of it."""
    gone = request("2.11.0", CPU).model_copy(update={"problem": "the index does not answer"})
    assert lines(tmp_path, [gone], [scenario("family/a")]) == ["1 environment, 1 cell"]

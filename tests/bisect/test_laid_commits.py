"""What commits make of wheels stays while a search lasts, as far as it can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import FakeCache
from whichtorch.environments import commit_environments
from whichtorch.environments.canary import ProbeAnswer
from whichtorch.environments.commit_environments import LaidCommits
from whichtorch.environments.patches import PatchedFiles
from whichtorch.model import Build, Config, Environment, Request


class Wheels(FakeCache):
    """Wheels whose Python is in a folder."""

    def environment(self, request: Request) -> Environment:
        return super().environment(request).model_copy(update={"interpreter": self.home / "venv/bin/python"})


@pytest.mark.parametrize("problem", [None, "the canary fails"])
def test_only_what_can_be_run_stays_laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str | None) -> None:
    """What is broken goes at once, and its reason names files that stay; the next search knows it without a probe."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").touch()
    (tmp_path / "venv/lib/python3.11/site-packages/torch").mkdir(parents=True)

    def probe(_: Request, interpreter: Path, __: object) -> ProbeAnswer:
        reason, log = problem and f"{problem} in {interpreter.parent.parent}", tmp_path / "log"
        return ProbeAnswer(problem=reason, is_lasting=True, log=log)

    monkeypatch.setattr(commit_environments, "run_probe", probe)
    files = PatchedFiles({"torch/a.py": ""}, "1 file")
    laid = LaidCommits(Wheels(tmp_path), lambda *_: files)  # type: ignore[arg-type]
    request = Request(torch="1.0", python="3.11", build=Build(name="pypi"), config=Config(name="default"), commit="c0")
    environment = laid.acquire(request)
    assert environment.is_usable is (problem is None)
    assert environment.reason == (problem and f"{problem} in {tmp_path / 'venv'}")
    assert len(list(tmp_path.glob("fix/in-use/*/venv"))) == (problem is None)
    laid.release(request)
    later = [LaidCommits(laid._wheels, laid._files_of, fresh=fresh).known(request) for fresh in (False, True)]
    assert later == [environment, None]
    assert not list(tmp_path.glob("fix/in-use/*/venv"))

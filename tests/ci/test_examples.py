"""docs/examples for GitLab and cron are run as they stand there, as far as they can be run here."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ci.conftest import Outside
from tests.ci.service import ROOT, SHELL, remarks, shell

pytestmark = [pytest.mark.nights, pytest.mark.xdist_group("nightly examples")]

MAIL = '#!/bin/sh\necho "$@" >> "$MAILED"\ncat >> "$MAILED"\n'


def example(name: str) -> str:
    """Return a file of docs/examples."""
    return (ROOT / "docs" / "examples" / name).read_text(encoding="utf-8")


def test_gitlab_runs_a_night(outside: Outside, repositories: Callable[[], Path], tmp_path: Path) -> None:
    """Each job takes its share, some none; they are merged, told, and compared with the night that the cache holds."""
    pipeline: dict[str, Any] = yaml.safe_load(example("gitlab-ci.yml"))
    environments, merge = pipeline["environments"], pipeline["merge"]
    assert merge["stage"] == pipeline["stages"][-1]
    jobs = environments["parallel"]
    (parts,) = environments["artifacts"]["paths"]
    (cached,) = merge["cache"]["paths"]
    last = repositories()

    def run(job: int, machine: Path) -> None:
        number = {
            "CI_NODE_INDEX": str(job),
            "CI_NODE_TOTAL": str(jobs),
            "WHICHTORCH_HOME": str(machine / ".whichtorch"),
        }
        for script in (environments["script"], environments["after_script"]):
            ended = shell([*SHELL, "\n".join(script)], machine, outside.environ, **number)
            assert ended.returncode == 0, ended.stdout
        shutil.copytree(machine / parts, last / parts, dirs_exist_ok=True)

    with ThreadPoolExecutor() as pool:
        list(pool.map(run, range(1, jobs + 1), [repositories() for _ in range(jobs)]))
    handed_over = sorted((last / parts).glob("*/*/run.json"))
    assert len(handed_over) == 2
    # the night before: one of the environments
    shutil.copytree(handed_over[0].parent.parent, last / cached)
    home = {"WHICHTORCH_HOME": str(last / ".whichtorch")}
    ended = shell([*SHELL, "\n".join(merge["script"])], last, outside.environ, **home)
    assert ended.returncode == 0, ended.stdout
    assert "2  still passing" in ended.stdout
    assert "2  appeared" in ended.stdout
    assert (last / merge["artifacts"]["reports"]["junit"]).is_file()
    assert len(list((last / cached).glob("*/run.json"))) == 2


def test_gitlab_runs_a_first_night(repositories: Callable[[], Path]) -> None:
    """Without a night in the cache there is nothing to compare with."""
    first, *_, compare = yaml.safe_load(example("gitlab-ci.yml"))["merge"]["script"]
    ended = shell([*SHELL, f"{first}\n{compare}\necho \"last: '$last'\""], repositories(), os.environ)
    assert (ended.returncode, ended.stdout) == (0, "last: ''\n")


def test_cron_mails_a_regression(outside: Outside, repositories: Callable[[], Path], tmp_path: Path) -> None:
    """The first night is quiet; what got worse is mailed; no night begins before the last has ended."""
    machine = repositories()
    (machine / "nightly.sh").write_text(example("nightly.sh"))
    (tmp_path / "mail").write_text(MAIL)
    (tmp_path / "mail").chmod(0o755)
    mailed = tmp_path / "mailed"
    *settings, line = re.findall(r"^#   (.*)", example("nightly.sh"), flags=re.MULTILINE)
    command = line.split(maxsplit=5)[5].replace("/srv/project", str(machine))
    environ = {
        **outside.environ,
        **dict(setting.split("=") for setting in settings if not setting.startswith("PATH=")),
        "PATH": f"{tmp_path}:{outside.environ['PATH']}",
        "MAILED": str(mailed),
    }
    assert shell(["sh", "-c", command], machine, environ).returncode == 0, (machine / "night.txt").read_text()
    assert not mailed.exists()
    shutil.rmtree(machine / ".whichtorch" / "envs")
    shutil.rmtree(machine / ".whichtorch" / "cache")
    outside.publish(v9_2_0="worse")
    try:
        assert shell(["sh", "-c", command], machine, environ).returncode == 1
    finally:
        outside.publish()
    text = mailed.read_text()
    assert text.startswith("-s whichtorch: exit code 1 you@example.org\n")
    assert "regression  pass -> FAIL!  repros/turns.py  torch-9.2.0-pypi" in text
    assert (machine / "output" / "index.html").is_file()
    locked = shell(["flock", str(machine / ".lock"), "sh", "-c", command], machine, environ)
    assert (locked.returncode, locked.stdout) == (1, "")
    assert len(list((machine / ".whichtorch" / "runs").glob("*/run.json"))) == 2


def test_scripts_are_sound() -> None:
    """Nothing in them is what shellcheck warns of."""
    jobs = [job for job in yaml.safe_load(example("gitlab-ci.yml")).values() if "script" in job]
    scripts = ["\n".join(job[part]) for job in jobs for part in ("script", "after_script") if part in job]
    assert [remarks("bash", script) for script in scripts] == [""] * 3
    assert remarks("sh", example("nightly.sh")) == ""


def test_gitlab_knows_all_its_words(tmp_path: Path) -> None:
    """The file is one by the schema that check-jsonschema brings."""
    (tmp_path / "gitlab-ci.yml").write_text(example("gitlab-ci.yml"))
    schema = ("-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci")
    ended = shell([sys.executable, *schema, "gitlab-ci.yml"], tmp_path, os.environ)
    assert ended.returncode == 0, ended.stdout

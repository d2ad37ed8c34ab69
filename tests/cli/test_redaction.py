"""Secrets and names planted wherever a run can meet them: none is in what it leaves behind."""

import json
import shlex
import sys
import venv
from pathlib import Path

import pytest

from tests.cli.shell import User
from tests.wheels import build_wheel, source_files

pytestmark = pytest.mark.thorough

PLANTED = {
    "user": "carolplanted",
    "host": "planted-node-17",
    "secret": 'planted"secret\\value',
    "password": "planted-password",
    "token": "ghp_" + "pLaNtEd" * 5,
}
TELLS = f"""import os, sys
shown = " ".join([os.environ["SERVICE_TOKEN"], {PLANTED["token"]!r}, os.environ["HOSTNAME"], __file__,
    "/scratch/" + os.environ["USER"] + "/data", "https://me:{PLANTED["password"]}@example.org/x"])
"""
FAILS = TELLS + "print(shown)\nprint(shown, file=sys.stderr, flush=True)\nraise RuntimeError(shown)\n"
LEAVES_ONE = (
    TELLS
    + """import subprocess
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *shown.split()], start_new_session=True)
"""
)
STUCK = (
    "# /// scenario\n# timeout = 30\n# ///\n"  # it is proven before; a short time's stacks are read in a part of it
    + TELLS
    + """import threading
threading.current_thread().name = shown[:60]
lock = threading.Lock()
def take_twice():
    lock.acquire()
    lock.acquire()
take_twice()
"""
)


@pytest.fixture
def carol(user: User, tmp_path: Path) -> User:
    """Return somebody whose everything lies in their home folder, with credentials in their settings."""
    home = tmp_path / "home" / PLANTED["user"]
    (home / "project" / ".whichtorch").mkdir(parents=True)
    settings = {
        "HOME": str(home),
        "USER": PLANTED["user"],
        "HOSTNAME": PLANTED["host"],
        "SERVICE_TOKEN": PLANTED["secret"],
        "UV_DEFAULT_INDEX": user.environ["UV_DEFAULT_INDEX"].replace("://", f"://me:{PLANTED['password']}@"),
        "CUDA_VISIBLE_DEVICES": "",
        "LD_LIBRARY_PATH": str(home / "lib"),
    }
    return User(home / "project", user.environ | settings)


def leaks(folder: Path) -> list[str]:
    """Return where what is planted can be read in the records, logs and reports of a user."""
    state = folder / ".whichtorch"
    files = [path for path in (state / "runs").rglob("*") if path.is_file()]
    files += [*state.glob("envs/*/logs/*.log"), *folder.glob("*.json"), *folder.glob("*.md")]
    forms = {name: {text, json.dumps(text)[1:-1], repr(text)[1:-1]} for name, text in PLANTED.items()}
    return [
        f"{name} in {path.relative_to(folder)}"
        for path in files
        for name, texts in forms.items()
        if any(text.encode() in path.read_bytes() for text in texts)
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_nothing_planted_is_left_behind(carol: User, wheels: Path) -> None:
    """Not in outputs, exceptions, survivors, stacks, records, logs of installs, or reports of three commands."""
    build_wheel(wheels, "9.3.0", behaviour="fails to import")
    names = [
        carol.script("fails.py", FAILS),
        carol.script("leaves.py", LEAVES_ONE),
        str(carol.folder / carol.script("stuck.py", STUCK)),
    ]
    written = ["--json", "result.json", "--markdown", "report.md", "--jobs", "3"]
    ended = carol.run("matrix", "--torch", "9.1.0,9.3.0", *names, *written)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    bisected = carol.run("bisect", "fails.py", "--torch", "9.1.0,9.2.0", "--json", "b.json", "--report", "b.md")
    assert bisected.returncode == 0, bisected.stdout + bisected.stderr
    carol.run("explain", names[2], "--json", "explain.json")
    assert len(json.loads((carol.folder / "explain.json").read_text())["explanations"]) == 1
    assert leaks(carol.folder) == []

    result = json.loads((carol.folder / "result.json").read_text())
    assert result["run"]["home"] == "~/project/.whichtorch"
    usable = next(environment for environment in result["environments"] if environment["outcome"] is None)
    assert usable["variables"] == usable["variables"] | {"CUDA_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": "~/lib"}
    assert not {"HOME", "USER", "PATH", "SERVICE_TOKEN"} & usable["variables"].keys()
    cells = {Path(cell["scenario"]).name: cell for cell in result["cells"] if cell["environment"] == usable["id"]}
    assert {name: cell["outcome"] for name, cell in cells.items()} == {
        "fails.py": "fail",
        "leaves.py": "pass",
        "stuck.py": "hang",
    }
    message = "<token> <token> <host> ~/project/{} /scratch/<user>/data https://<credentials>@example.org/x"
    assert cells["fails.py"]["attempts"][0]["message"] == message.format("fails.py")
    assert "sleep(60) <token> <token> <host> ~/project/leaves.py" in cells["leaves.py"]["attempts"][0]["survivors"][0]
    assert cells["stuck.py"]["signature"] == "stuck: lock cycle in stuck.py:12"
    assert cells["stuck.py"]["scenario"] == "~/project/stuck.py"


def test_what_is_recorded_below_home_is_found_again(carol: User) -> None:
    """With state and a Python's folder below `~`, dispatch knows its label, and a report's command runs."""
    script = str(carol.folder / carol.script("fails.py", "NOTE\nassert False\n"))
    venv.create(carol.folder / "venv", symlinks=True)
    (packages,) = (carol.folder / "venv").glob("lib/python*/site-packages")
    for name, text in source_files("9.2.0").items():
        (packages / name).parent.mkdir(exist_ok=True)
        (packages / name).write_text(text)
    ended = carol.run("matrix", "--interpreter", str(carol.folder / "venv"), script, "--markdown", "report.md")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    shown = carol.run("dispatch", "aten::mm", "python-venv")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    (line,) = (line for line in (carol.folder / "report.md").read_text().splitlines() if "rerun: `" in line)
    command = shlex.split(line.rpartition("rerun: `")[2].rstrip("`"))
    assert "~/project/fails.py" in command
    runs = carol.runs("fails.py")
    assert carol.run(*command[1:]).returncode == 1
    assert carol.runs("fails.py") == runs + 1
    assert leaks(carol.folder) == []

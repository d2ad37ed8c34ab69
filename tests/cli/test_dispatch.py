"""`whichtorch dispatch`, on stand-in wheels."""

import json
from pathlib import Path

from tests.cli.shell import User
from tests.wheels import build_wheel


def test_dispatch_tables_are_compared_live(user: User, wheels: Path) -> None:
    """Two known environments by their labels, one of them with its Meta kernel registered from Python."""
    build_wheel(wheels, "9.3.0", behaviour="Python meta kernels")
    user.run("matrix", "--torch", "9.2.0,9.3.0", user.script("repro.py", "NOTE\n"))
    ended = user.run("dispatch", "mm", "torch-9.2.0-pypi", "torch-9.3.0-pypi", "--json", "tables.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[2:] == [
        "1 of 2 dispatch keys lead to another kernel:",
        "Meta:",
        "    C++, RegisterMeta.cpp:7 [kernel]",
        "    Python, boxed, _meta_registrations.py:7 [kernel]",
    ]
    written = json.loads((user.folder / "tables.json").read_text())
    assert [difference["key"] for difference in written["differences"]] == ["Meta"]

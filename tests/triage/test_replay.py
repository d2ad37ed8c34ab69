"""A case as one file."""

import zipfile
from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.base.redaction import Redactor
from whichtorch.triage.case import FILE, Case
from whichtorch.triage.replay import ARCHIVE, pack, unpack


def write_case(folder: Path) -> Case:
    """Write a case with a log into a folder."""
    case = Case(name="repro", script="repro.py", source_hash="abc")
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "torch_logs.txt").write_text("log")
    (folder / FILE).write_text(case.model_dump_json(by_alias=True))
    return case


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    """All files of the folder come along, the archive of before and links out of the folder do not."""
    case = write_case(tmp_path / "case")
    (tmp_path / "case" / "link").symlink_to("/etc/hostname")
    pack(tmp_path / "case", Redactor.of_this_machine({}))
    archive = pack(tmp_path / "case", Redactor.of_this_machine({}))
    assert zipfile.ZipFile(archive).namelist() == [FILE, "logs/torch_logs.txt"]
    assert unpack(archive, tmp_path / "there") == case
    assert (tmp_path / "there" / "logs" / "torch_logs.txt").read_text() == "log"


def test_secrets_do_not_leave_the_machine(tmp_path: Path) -> None:
    """The value of a variable that holds a secret is in no file of the archive, whatever its name."""
    write_case(tmp_path / "case")
    (tmp_path / "case" / "repro.py").write_text("key = 'hunter2hunter2'\n")
    archive = pack(tmp_path / "case", Redactor.of_this_machine({"API_TOKEN": "hunter2hunter2"}))
    unpack(archive, tmp_path / "there")
    assert "hunter2" not in (tmp_path / "there" / "repro.py").read_text()


def test_nothing_is_written_outside_the_folder(tmp_path: Path) -> None:
    """Whatever names an archive holds, its files land within the folder."""
    case = write_case(tmp_path / "case")
    archive = tmp_path / ARCHIVE
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(FILE, case.model_dump_json(by_alias=True))
        file.writestr("../../outside.txt", "no")
    unpack(archive, tmp_path / "a" / "b")
    assert not list(tmp_path.glob("outside.txt"))


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_what_is_no_case_is_a_mistake(tmp_path: Path, content: bytes | None) -> None:
    """No file, no archive, and an archive of something else are told in words."""
    archive = tmp_path / ARCHIVE
    if content is not None:
        archive.write_bytes(content)
    with pytest.raises(UsageError, match=ARCHIVE):
        unpack(archive, tmp_path / "there")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name": 1, "scrpt": "x"}', r"name: .*script: .*scrpt: "),
        *((Case(name="repro", script=script, source_hash="abc").model_dump_json(by_alias=True), "is no name of a file")
          for script in ("/etc/repro.py", "../repro.py", "below/../../repro.py")),
    ],
)  # fmt: skip
def test_a_case_of_another_form_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    """All mistakes are named at once; a stranger's case cannot have a script of the user's run."""
    archive = tmp_path / ARCHIVE
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(FILE, text)
    with pytest.raises(UsageError, match=words):
        unpack(archive, tmp_path / "there")

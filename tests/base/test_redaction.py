"""What must not be stored is replaced, and nothing else is touched."""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.hangs.pictures import files, parse
from tests.hangs.test_hang_diagnosis import KINDS
from whichtorch import model
from whichtorch.base.redaction import COMMON, Redactor, restored
from whichtorch.hangs import stacks
from whichtorch.hangs.hang_diagnosis import diagnose

PLANTED = 'p4ss"w\\ord/ü'
REDACTOR = Redactor(
    homes=("/data/people/alice",), users=("alice",), hosts=("gpu01.corp.example", "gpu01"), secrets=(PLANTED,)
)
HASH = "4f0e1c9a7b3d5e8f60718293a4b5c6d7e8f90a1b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://alice:hunter2@pypi.corp/simple/torch/", "https://<credentials>@pypi.corp/simple/torch/"),
        ("at http://sometoken@host.com:8080/x", "at http://<credentials>@host.com:8080/x"),
        ("://user:p@ss@host/", "://<credentials>@host/"),
        ("GET /x?token=abc123&page=2", "GET /x?token=<token>&page=2"),
        ("GET /x?a=b&X-Amz-Signature=0a1b2c", "GET /x?a=b&X-Amz-Signature=<token>"),
        ("password=hunter2 user=bob", "password=<token> user=bob"),
        ("{'api_key': 'abcd-efgh'}", "{'api_key': '<token>'}"),
        ("HF_TOKEN=abcdefgh python x.py", "HF_TOKEN=<token> python x.py"),
        ("python x.py --hf-token abcdefgh -v", "python x.py --hf-token <token> -v"),
        ("Authorization: Basic YWxpY2U6aHVudGVyMg==", "Authorization: Basic <token>"),
        ("{'authorization': 'Bearer abcdefghij0123456789'}", "{'authorization': 'Bearer <token>'}"),
        ("curl with Bearer abcdefghij0123456789", "curl with Bearer <token>"),
        ("machine pypi.corp login alice password hunter2", "machine pypi.corp login <user> password <token>"),
        ("x\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\ny", "x\n<private key>\ny"),
        ("-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n" + "B" * 64 + "\n[... cut", "<private key>\n[... cut"),
        ("/home/bob/lib/site-packages/torch/_ops.py", "/home/<user>/lib/site-packages/torch/_ops.py"),
        ('File "/home/bob/x.py", line 3, in f', 'File "/home/<user>/x.py", line 3, in f'),
        ("cd /Users/bob && ls", "cd /Users/<user> && ls"),
        (r"C:\Users\Bob Smith\x.py", r"C:\Users\<user>\x.py"),
        (r"'C:\\Users\\bob\\x.py'", r"'C:\\Users\\<user>\\x.py'"),
        ("/data/people/alice/x.py and /data/people/alice", "~/x.py and ~"),
        ("/data/people/alice-2/x /mnt/data/people/alice/x", "/data/people/alice-2/x /mnt/data/people/<user>/x"),
        ("/tmp/torchinductor_alice/ab/x.py, alice@gpu01", "/tmp/torchinductor_<user>/ab/x.py, <user>@<host>"),
        ("connect to gpu01.corp.example:29500 from gpu01", "connect to <host>:29500 from <host>"),
        (f"it is {PLANTED}.", "it is <token>."),
    ],
)  # fmt: skip
def test_is_replaced(text: str, expected: str) -> None:
    """Each kind is replaced by what it is, and the text around it stays."""
    assert REDACTOR.text(text) == expected


@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2_" * 12,
        "glpat-" + "a1B2" * 5,
        "hf_" + "aBcD" * 8,
        "pypi-AgEIcHlwaS5vcmc" + "a1B2" * 12,
        "npm_" + "a1B2" * 9,
        "xoxb-123456789012-abcdefghijkl",
        "AKIAIOSFODNN7EXAMPLE",
        "AIza" + "a1B2_" * 7,
        "sk-ant-api03-" + "a1B2_" * 8,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def_ghi",
    ],
)
def test_tokens_are_known_by_their_shape(token: str) -> None:
    """A token that no variable holds is replaced wherever it stands."""
    assert REDACTOR.text(f"at '{token}', ({token})\n{token}") == "at '<token>', (<token>)\n<token>"


ORDINARY = f"""\
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/torch/_dynamo/utils.py", line 3120, in run_node
    raise RuntimeError(make_error_message(e)).with_traceback(e.__traceback__) from e
torch._dynamo.exc.TorchRuntimeError: got RuntimeError('key: 5, num_tokens=128, eos_token = "</s>", token=None')
    self.password = password  # self.api_key: str = get_api_key()
    client = connect(password=get_password(), token=self.token)
torch 2.11.0.dev20261120+cpu git {HASH} sha256:{HASH}{HASH[:24]} 0x7f00deadbeef
Meta: registered at /dev/null:241 [math kernel]; /home/conda/feedstock_root/build_artifacts/RegisterMeta.cpp:5
at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&), key set [AutogradCPU, Meta]
disk-1 task-123456789012345678901234 risk-free hf_hub_download(repo) https://download.pytorch.org/whl/cpu
git+ssh://git@github.com/pytorch/pytorch.git@{HASH} numpy==2.2.0 aten/alice malice gpu012 hf_transfer
"""


def test_ordinary_output_stays() -> None:
    """Versions, hashes, symbols, source lines, dispatch tables and paths of packages are as they were."""
    assert REDACTOR.text(ORDINARY) == ORDINARY
    assert REDACTOR.data(ORDINARY.encode()) == ORDINARY.encode()


NAMES = ("alice", "gpu01", "gpu01.corp.example", "/home/", "/data/people/alice", "C:\\Users\\", "machine ", "login ")
SHAPES = (
    "password",
    "token",
    "TOKEN=",
    "--token ",
    "Authorization: ",
    "Basic ",
    "Bearer ",
    "://",
    "a1b2c3d4e5f6a7b8c9d0",
)
TOKENS = ("ghp_" + "a" * 36, "sk-" + "a1" * 12, "-----BEGIN PRIVATE KEY-----", "A" * 40, PLANTED)
PIECES = st.sampled_from([*"/:@=&?\\\"' \n.-_<>~", *NAMES, *SHAPES, *TOKENS])
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)


@given(TEXTS)
@example("/alice.gpu01")
def test_twice_is_once(text: str) -> None:
    """What is redacted has nothing left to redact."""
    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once
    assert PLANTED not in once


def shape(value: object) -> object:
    """Return a JSON value with its strings left out."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "" if isinstance(value, str) else value


def strings(value: object) -> list[str]:
    """Return all strings in a JSON value."""
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return [text for item in items for text in strings(item)]
    return [value] if isinstance(value, str) else []


VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["path", "host", "to:"]), inner),
    max_leaves=6,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_json_stays_json(value: object, ascii_only: bool, indent: int | None) -> None:
    """Every string is redacted, however it is escaped, and structure, names and numbers are as they were."""
    redacted = REDACTOR.json_line(json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    found = json.loads(redacted)
    assert shape(found) == shape(value)
    assert strings(found) == [REDACTOR.text(text) for text in strings(value)]
    assert REDACTOR.json_line(redacted) == redacted


@given(st.binary())
def test_other_bytes_stay(data: bytes) -> None:
    """Output that is no text keeps its bytes."""
    assert REDACTOR.data(data + b"\0/home/bob/\xff\n") == data + b"\0/home/<user>/\xff\n"


@pytest.mark.parametrize("piece", ["a", "/", "-", "://a@", "sk-", "password=", "-----BEGIN PRIVATE KEY-----", "A "])
def test_a_long_line_takes_no_longer_than_its_length(piece: str) -> None:
    """No pattern goes back and forth over a long line: ten times its length takes less than fifty times as long."""

    def seconds(size: int) -> float:
        started = time.process_time()
        REDACTOR.text("token password login authorization bearer sk- /home/x " + piece * (size // len(piece)))
        return time.process_time() - started

    size = 200_000 if piece in "a/" else 20_000
    assert seconds(10 * size) < 50 * min(seconds(size) for _ in range(3))


def test_facts_are_of_the_environment(tmp_path: Path) -> None:
    """Variables tell the home folder, the user, the host and secrets; those that are paths or short are no secrets."""
    (tmp_path / "agent").touch()
    redactor = Redactor.of_this_machine(
        {
            "HOME": "/data/people/carol",
            "USER": "carol",
            "HOSTNAME": "node17.corp.example",
            "HF_TOKEN": "abc-def-ghi",
            "SSH_AUTH_SOCK": str(tmp_path / "agent"),
            "TOKENIZERS_PARALLELISM": "false",
            "PIP_INDEX_URL": "https://carol:s3cr%40t-word@pypi.corp/simple",
        }
    )
    said = f"/data/people/carol/x /scratch/carol/x node17 abc-def-ghi false s3cr@t-word {tmp_path}/agent"
    assert redactor.text(said) == f"~/x /scratch/<user>/x <host> <token> false <token> {tmp_path}/agent"
    assert redactor.knowing({"MY_PASSWORD": "of-a-config"}).text("of-a-config") == "<token>"


def test_names_that_everybody_has_are_kept() -> None:
    """A host that is called as an outcome or as a word of torch, or by two letters, does not ruin records."""
    for name in ("vm", "localhost", "12345", "root"):
        assert (
            Redactor.of_this_machine({"HOME": "/data/me", "HOSTNAME": name, "USER": name}).text(f"/{name}/")
            == f"/{name}/"
        )
    words = [*model.Outcome, *model.StoppedBy, *model.Role]
    assert {str(word) for word in words} <= COMMON


@pytest.mark.parametrize("name", KINDS)
def test_a_diagnosis_is_the_same(name: str, tmp_path: Path) -> None:
    """Stacks of real hangs, their paths in somebody's home folder, show what they showed before they were redacted."""
    shown = []
    for folder in (tmp_path / "as-taken", tmp_path / "redacted"):
        folder.mkdir()
        for path in files(name):
            text = re.sub(r"\b(?:ENV|PYTHON|BUILD)/", "/data/people/alice/env/", path.read_text())
            (folder / path.name).write_text(re.sub(r"\bWORK/", "/home/bob/work/", text))
        if folder.name == "redacted":
            REDACTOR.tree(folder)
        shown.append(diagnose(stacks.merge(*(parse(path) for path in sorted(folder.iterdir())))))
    before, after = shown
    assert (after.kind, after.stuck_thread) == (before.kind, before.stuck_thread) == KINDS[name]
    assert after.signature_frames == before.signature_frames
    assert after.summary == REDACTOR.text(before.summary)


def test_a_stored_path_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is the reader's own folder, and <user> whoever has such a file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert restored(Path("~/env/bin/python")) == tmp_path / "env" / "bin" / "python"
    (tmp_path / "bob" / "env").mkdir(parents=True)
    assert restored(tmp_path / "<user>" / "env") == tmp_path / "bob" / "env"
    assert restored(tmp_path / "<user>" / "other") == tmp_path / "<user>" / "other"


def test_only_files_that_hold_some_are_written(tmp_path: Path) -> None:
    """A tree of files is rewritten where something is replaced; JSON by its strings, links not at all."""
    clean, text, found = tmp_path / "clean.txt", tmp_path / "deep" / "out.txt", tmp_path / "deep" / "1.pyspy.json"
    text.parent.mkdir()
    clean.write_text("nothing")
    text.write_bytes(b"\xff /home/bob/x")
    found.write_text(json.dumps([PLANTED]))
    (tmp_path / "link").symlink_to(text)
    before = clean.stat()
    REDACTOR.tree(tmp_path)
    assert clean.stat().st_mtime_ns == before.st_mtime_ns
    assert clean.stat().st_ino == before.st_ino
    assert text.read_bytes() == b"\xff /home/<user>/x"
    assert json.loads(found.read_text()) == ["<token>"]
    assert sorted(path.name for path in text.parent.iterdir()) == ["1.pyspy.json", "out.txt"]

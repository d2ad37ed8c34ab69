"""Headers say what a scenario is; mistakes in them are all told at once, with place and remedy."""

import ast
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import contract
from tests.patience import PATIENCE
from whichtorch.base.errors import UsageError
from whichtorch.model import Condition, Expectation, Outcome, Scenario
from whichtorch.suite import selection
from whichtorch.suite.chain import is_chain_key
from whichtorch.suite.headers import ScenarioError, read_scenario
from whichtorch.suite.selection import expected, is_as_expected, select, variant_environ, variants_of

SUITE = selection.suite()
WHERE = {"python": "3.11.7", "build": "pypi", "config": "default"}


def script(folder: Path, header: str, name: str = "case.py", body: str = "print('ran')\n") -> Path:
    """Write a script whose header holds the TOML text `header`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"# {line}".rstrip() for line in header.strip("\n").split("\n")]
    path.write_text("\n".join(["# /// scenario", *lines, "# ///", body]), encoding="utf-8")
    return path


def mistakes_of(path: Path) -> list[str]:
    """Return what is wrong with a script's header, as "line: message"."""
    with pytest.raises(ScenarioError) as caught:
        read_scenario(path)
    assert all(mistake.path == path for mistake in caught.value.mistakes)
    return [f"{mistake.line}: {mistake.message}" for mistake in caught.value.mistakes]


def scenario(name: str, **fields: object) -> Scenario:
    """Return a scenario that no file stands behind."""
    return Scenario.model_validate({"name": name, "path": f"/suite/{name}.py", "source_hash": "hash"} | fields)


# Reading


def test_every_key_of_a_header_is_read(tmp_path: Path) -> None:
    """All that a header may say arrives in the scenario, numbers of variants as text."""
    (tmp_path / "case.cpp").touch()
    path = script(
        tmp_path,
        """
summary = "adds"
tags = ["meta", "seed"]
timeout = 90
memory_mb = 512
on_request = true
links = ["https://example.org/1"]
conditions = [{ op = "aten::mm", under = "aten::matmul", keys = ["Meta"], variant = { threads = 2 } }]
one_factor = true
native = ["case.cpp"]
expect = [{ torch = "<2.12", variant = { threads = 2 }, outcome = "hang", why = "it does" }]

[variants]
threads = [1, 2]
grad = ["on", "off"]
""",
    )
    assert read_scenario(path, "family/case") == Scenario(
        name="family/case",
        path=path,
        source_hash=read_scenario(path).source_hash,
        summary="adds",
        tags=("meta", "seed"),
        timeout=90,
        has_timeout=True,
        memory_mb=512,
        links=("https://example.org/1",),
        conditions=(Condition(op="aten::mm", under="aten::matmul", keys=("Meta",), variant={"threads": "2"}),),
        one_factor=True,
        native=("case.cpp",),
        expect=(Expectation(outcome=Outcome.HANG, torch="<2.12", variant={"threads": "2"}, why="it does"),),
        variants={"threads": ("1", "2"), "grad": ("on", "off")},
        in_suite=False,
        on_request=True,
    )


@pytest.mark.parametrize(
    "source", ["import torch\n", "", "# /// script\n# dependencies = []\n# ///\n", "#! python\n#\n# /\n", "\xff"]
)
def test_a_script_needs_no_header(tmp_path: Path, source: str) -> None:
    """A script of a user's own gets the defaults and is called by its path."""
    path = tmp_path / "repro.py"
    path.write_bytes(source.encode("latin-1"))
    case = read_scenario(path)
    assert (case.name, case.timeout, case.variants) == (path.as_posix(), 60, {})
    assert not case.in_suite


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("before", ["", "#!/usr/bin/env python\n# A comment.\n", "\ufeff", "# /// script\n# ///\n"])
def test_a_header_is_found_wherever_it_stands(tmp_path: Path, before: str, newline: str) -> None:
    """Line ends, a byte order mark, comments and other blocks around a header do not matter."""
    text = before + '# /// scenario\n#\n# summary = "found"\n# ///\n# # /// more\nprint()\n'
    path = tmp_path / "case.py"
    path.write_bytes(text.replace("\n", newline).encode())
    assert read_scenario(path).summary == "found"


def test_the_hash_follows_the_bytes(tmp_path: Path) -> None:
    """Another byte anywhere makes another source, also in a source that is built with the script."""
    own, native = script(tmp_path, "", "own.py"), tmp_path / "case.cpp"
    native.touch()
    building = script(tmp_path, 'native = ["case.cpp"]')
    for path, read in ((own, own), (native, building)):
        hashes = set()
        for source in (b"", b"\n", b"\r\n", b"# \xff"):
            path.write_bytes(source)
            hashes.add(read_scenario(read).source_hash)
        assert len(hashes) == 4


@pytest.mark.parametrize("changed", ["helper.py", "deep.py", "pack/inner.py"])
def test_the_hash_follows_the_modules_beside_a_script(tmp_path: Path, changed: str) -> None:
    """Those that it imports, whatever imports them; no other module, and no file that it may write."""
    (tmp_path / "pack").mkdir()
    files = {"case.py": "import helper\nopen('rows.txt')", "helper.py": "from pack.inner import x\nimport deep, torch"}
    for name, text in (files | {"deep.py": "", "pack/inner.py": "x = 1", "other.py": "", "rows.txt": "1"}).items():
        (tmp_path / name).write_text(text)
    before = read_scenario(tmp_path / "case.py").source_hash
    (tmp_path / "other.py").write_text("x = 2")
    (tmp_path / "rows.txt").write_text("2")
    assert read_scenario(tmp_path / "case.py").source_hash == before
    (tmp_path / changed).write_text("x = 2")
    assert read_scenario(tmp_path / "case.py").source_hash != before


def test_a_script_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A path with nothing or a folder behind it gives one line."""
    with pytest.raises(UsageError, match=r"cannot read the script .*none\.py: No such file"):
        read_scenario(tmp_path / "none.py")
    with pytest.raises(UsageError, match="Is a directory"):
        read_scenario(tmp_path)


def test_a_script_of_the_suite_is_named_by_its_place() -> None:
    """Read by its path alone, a script of the suite is still the same scenario."""
    for case in SUITE:
        assert read_scenario(case.path) == case


WORD = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)


@given(summary=WORD, tags=st.lists(WORD), timeout=st.integers(1, 10**6), values=st.lists(WORD, min_size=1, unique=True))
def test_what_was_written_is_what_is_read(summary: str, tags: list[str], timeout: int, values: list[str]) -> None:
    """Any text survives the way through comment and TOML."""

    def toml(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    header = f"summary = {toml(summary)}\ntags = {toml(tags)}\ntimeout = {timeout}\n[variants]\na = {toml(values)}"
    with tempfile.TemporaryDirectory() as folder:
        case = read_scenario(script(Path(folder), header))
    assert case.summary == summary
    assert list(case.tags) == tags
    assert case.timeout == timeout
    assert case.variants == {"a": tuple(values)}


TOML_PIECES = st.sampled_from(
    [
        *("expect", "variants", "conditions", "torch", "outcome", "variant", "op", "timeout", "links", "x"),
        *(" = ", "[", "]", "[[", "]]", "{", "}", ",", ".", "\n# ", "\n", '"', "'", "''", "#", " ", "# ///"),
        *("1", "-1", "inf", "nan", "1e400", "true", "1979-05-27", '"fail"', '"<2"', "[]", "{}", "[1, [2]]", "\x0c"),
        *("é", "on_request"),
    ]
)


@given(st.lists(TOML_PIECES, max_size=30).map("".join))
def test_whatever_a_header_holds_it_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in a way that a user cannot read, and every mistake is in the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.py"
        path.write_text(f"# /// scenario\n# {text}\n# ///\n", encoding="utf-8", newline="")
        try:
            read_scenario(path)
            mistakes = []
        except ScenarioError as error:
            mistakes = [mistake.line for mistake in error.mistakes]
        assert set(mistakes) <= set(range(1, len(path.read_text(encoding="utf-8").split("\n")) + 1))


# Mistakes


def test_all_mistakes_of_a_header_are_told_at_once(tmp_path: Path) -> None:
    """Six mistakes give six lines, each with its own line of the file and a remedy."""
    path = script(
        tmp_path,
        """
summary = 3
tag = ["meta"]
timeout = "60"
expect = [
  { torch = "<2.12", outcome = "fail" },
  { torch = "2.12 and later", outcome = "hangs", variant = { thread = 2 } },
]
[variants]
threads = [1, 2]
""",
    )
    assert mistakes_of(path) == [
        "2: summary: must be text, in quotes",
        "3: tag: unknown key; did you mean 'tags'?",
        "4: timeout: must be a number without quotes",
        "7: expect.1.variant: there is no variant 'thread'; did you mean 'threads'?",
        "7: expect.1.outcome: 'hangs' is not an outcome; did you mean 'hang'?",
        "7: expect.1.torch: '2.12 and later' is not a specifier such as '<2.12'",
    ]


@pytest.mark.parametrize(
    ("header", "mistake"),
    [
        ("timeout = 0", "2: timeout: must be more than 0"),
        ("timeout = inf", "2: timeout: must be finite; minutes are enough to see a hang"),
        ('# all of them\ntags = "meta"', "3: tags: must be a list, in [brackets]"),
        ("on_request = 1", "2: on_request: must be true or false, without quotes"),
        ("memory_mb = 1.5", "2: memory_mb: must be a whole number without quotes"),
        ("variants = 1", "2: variants: must be a table of names and values"),
        ("expect = [1]", "2: expect.0: must be a table, in {braces}"),
        ('links = ["#1"]', "2: links: '#1' is not a URL; write it out from https:// on"),
        ('source_hash = "x"', "2: source_hash: unknown key; known here: summary, "),
        ("conditions = [{}]", "2: conditions.0.op: is missing"),
        ('conditions = [{ op = "a", key = [] }]', "2: conditions.0.key: unknown key; did you mean 'keys'?"),
        ("[variants]\nx = []", "3: variants.x: has no values; list some or leave it out"),
        ("[variants]\nx = [1, '1']", "3: variants.x: has a value twice; leave one out"),
        ("[variants]\nx = [1.5]", "3: variants.x.0: must be text, in quotes"),
        ("[variants]\nGrad = ['on']", "3: variants.Grad: names are lower-case letters, digits and _"),
        (
            "[variants]\nhooks = ['on']",
            "3: variants.hooks: taken, as are accesses, attempt, brief_exit, command, fetch, functions, home, hooks, ",
        ),
        ("native = ['none.cpp']", "2: native: 'none.cpp' is no file in the script's folder, or all sources are larger"),
        ("native = 'none.cpp'", "2: native: must be a list, in [brackets]"),
        ("one_factor = 1", "2: one_factor: must be true or false, without quotes"),
        ('conditions = [{ op = "a", thread = "ui" }]', "2: conditions.0.thread: must be 'main' or 'other'"),
        (
            "variants = {n = [1]}\nconditions = [{ op = 'a', variant = {n = 2} }]",
            "3: conditions.0.variant: n is never '2'; known here: 1",
        ),
        ("[[expect]]\noutcome = 'fail'\n[[expect]]\noutcome = 'x'", "5: expect.1.outcome: 'x' is not an outcome; "),
        ("[[expect]]\noutcome = 'fail'\nvariant = {n = 1}", "4: expect.0.variant: there is no variant 'n'; none is"),
        (
            "variants = {n = [1]}\nexpect = [{ outcome = 'fail', variant = {n = 2} }]",
            "3: expect.0.variant: n is never '2'; known here: 1",
        ),
        ("timeout = 1\ntimeout = 2", "3: not TOML: cannot overwrite a value"),
        ("tags = [", "2: not TOML: "),
    ],
)
def test_a_mistake_has_its_place_and_remedy(tmp_path: Path, header: str, mistake: str) -> None:
    """Each kind of mistake is told in a user's words, at its line."""
    mistakes = mistakes_of(script(tmp_path, header.strip(" ")))
    assert len(mistakes) == 1
    assert mistakes[0].startswith(mistake)


NO_FILES = ["/dev/zero", "../outside.cpp", "link.cpp", "round.cpp", "pipe.cpp", "large.cpp", ".", "", "\\u0000"]


@pytest.mark.parametrize("name", ["{own}/inside.cpp", *NO_FILES])
def test_native_sources_are_files_in_the_folder_of_the_script(tmp_path: Path, name: str) -> None:
    """The tool itself reads them, so a stranger's header leads it to no other file, and to none without an end."""
    own = tmp_path / "own"
    own.mkdir()
    for path in (tmp_path / "outside.cpp", own / "inside.cpp"):
        path.write_text("int x;")
    (own / "link.cpp").symlink_to(tmp_path / "outside.cpp")
    (own / "round.cpp").symlink_to("round.cpp")
    os.mkfifo(own / "pipe.cpp")
    with (own / "large.cpp").open("wb") as file:
        file.truncate(11_000_000)
    (mistake,) = mistakes_of(script(own, f'native = ["{name.format(own=own)}"]'))
    assert mistake.startswith("2: native: '")
    assert "is no file in the script's folder, or all sources are larger than 10 MB" in mistake


def test_all_native_sources_together_are_bounded(tmp_path: Path) -> None:
    """A source that is named again and again is not read without end; one in a folder below or linked to it is."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "case.cpp").write_bytes(bytes(4_000_000))
    (tmp_path / "link.cpp").symlink_to("below/case.cpp")
    path = script(tmp_path, 'native = ["below/case.cpp", "link.cpp"]')
    assert read_scenario(path).native == ("below/case.cpp", "link.cpp")
    (mistake,) = mistakes_of(script(tmp_path, 'native = ["below/case.cpp", "link.cpp", "below/case.cpp"]'))
    assert mistake.startswith("2: native: 'below/case.cpp'")


def test_no_variant_may_take_the_name_of_a_variable(tmp_path: Path) -> None:
    """A variant `stacks` would be WHICHTORCH_STACKS: every variable that the contract promises is taken."""
    names = [name.removeprefix("WHICHTORCH_").lower() for name in contract.words("variable", "set by", "meaning")]
    assert {"stacks", "fetch", "command", "pytorch_index"} < set(names)
    header = "[variants]\n" + "\n".join(f"{name} = ['on']" for name in names)
    expected_starts = [f"{line}: variants.{name}: taken, as are " for line, name in enumerate(names, 3)]
    assert [mistake.partition("accesses, ")[0] for mistake in mistakes_of(script(tmp_path, header))] == expected_starts


@pytest.mark.parametrize(
    ("source", "mistake"),
    [
        ("# /// scenario\n# timeout = 1\n", "2: the header has no end; write '# ///' after its last line"),
        ("# /// scenario\n# timeout = 1\nimport os", "3: the header has no end; write '# ///' before this line"),
        ("# /// scenario\n#timeout = 1\n# ///", "2: the header has no end; write '# ///' before this line"),
        ("# /// scenarios\n# ///", "1: '# /// scenarios' starts no header; did you mean '# /// scenario'?"),
        ("\n#///scenario\n# ///", "2: '#///scenario' starts no header; did you mean '# /// scenario'?"),
        ("# /// scenario\n# ///\n# /// scenario\n# ///", "3: a second header; the first is in line 1: join the two"),
    ],
)
def test_a_header_marked_wrongly_is_not_passed_over(tmp_path: Path, source: str, mistake: str) -> None:
    """A header that is nearly one would silently become a script without one."""
    path = tmp_path / "case.py"
    path.write_text(source)
    mistakes = mistakes_of(path)
    assert len(mistakes) == 1
    assert mistakes[0].startswith(mistake)


def test_all_files_of_a_suite_are_told_at_once(tmp_path: Path) -> None:
    """One message names the mistakes of every header, by file and line."""
    second = script(tmp_path, "timeout = 0", "b/one.py")
    first = script(tmp_path, "tags = 1\nsumary = ''", "a/two.py")
    with pytest.raises(ScenarioError) as caught:
        selection.suite(tmp_path)
    assert caught.value.message.splitlines() == [
        "3 mistakes in scenario headers:",
        f"  {first}:2: tags: must be a list, in [brackets]",
        f"  {first}:3: sumary: unknown key; did you mean 'summary'?",
        f"  {second}:2: timeout: must be more than 0",
    ]
    assert "timeout" in caught.value.hint


# The suite


def test_a_suite_is_every_script_by_family(tmp_path: Path) -> None:
    """Scripts below the root's folders are named by folder and file; others are no scenarios."""
    for name in ("b/two.py", "a/one.py", "a/_shared.py", "__pycache__/x.py", "header.py", "a/notes.txt"):
        script(tmp_path, "", name)
    scenarios = selection.suite(tmp_path)
    assert [each.name for each in scenarios] == ["a/one", "b/two"]
    assert all(each.in_suite for each in scenarios)


def test_every_script_is_one_that_a_user_could_run() -> None:
    """Each has a summary and tags, reads under Python 3.8, hides no module, and has a default for every variant."""
    assert SUITE
    for case in SUITE:
        source = case.path.read_text(encoding="utf-8")
        ast.parse(source, case.name, feature_version=(3, 8))
        assert case.summary, case.name
        assert case.tags, case.name
        assert case.path.stem not in sys.stdlib_module_names  # its folder is the first to be searched
        on_request = ("control/", "compile/", "export/", "inductor/", "warm/")
        assert case.on_request == case.name.startswith(on_request), case.name
        for name in itertools.filterfalse(is_chain_key, case.variants):
            assert f'os.environ.get("WHICHTORCH_{name.upper()}", ' in source, case.name


def test_the_controls_cover_what_a_script_can_come_to() -> None:
    """There is a control for every outcome that one run of a script decides."""
    controls = select(SUITE, ["control/*"])
    announced = {line.outcome for case in controls for line in case.expect}
    assert announced == {"pass", "skip", "fail", "crash", "hang", "oom", "slow"}
    assert all(expected(case, {}, WHERE | {"torch": ""}) for case in controls)


@pytest.mark.parametrize(
    ("name", "code"), [("pass", 0), ("skip", 125), ("fail", 1), ("crash", -11), ("slow", 0), ("overrun", 0)]
)
def test_controls_end_as_they_say(tmp_path: Path, name: str, code: int) -> None:
    """A control that ends by itself does so with the exit code of its outcome, without torch."""
    path = next(case.path for case in SUITE if case.name == f"control/{name}")
    environ = os.environ | {"WHICHTORCH_SECONDS": "0.1"}
    command = [sys.executable, "-I", "-X", "faulthandler=0", str(path)]
    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, timeout=PATIENCE, check=False)
    assert ended.returncode == code


@pytest.mark.parametrize("work", ["sleep", "subprocess", "output", "compile"])
def test_every_kind_of_slow_work_ends(tmp_path: Path, work: str) -> None:
    """Each variant of the slow control ends well, and says so."""
    path = next(case.path for case in SUITE if case.name == "control/slow")
    environ = os.environ | {"WHICHTORCH_SECONDS": "0.1", "WHICHTORCH_WORK": work}
    command = [sys.executable, str(path)]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ended.stdout.splitlines()[-1] == f"{work} is done"


@pytest.mark.parametrize("name", ["deadlock", "gil_deadlock", "spin_python", "spin_native"])
def test_hanging_controls_do_not_end(name: str) -> None:
    """A control that hangs is still there after a while."""
    path = next(case.path for case in SUITE if case.name == f"control/{name}")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, str(path)], timeout=0.7, check=False, capture_output=True)


# Selection

SOME = [
    scenario("control/hangs", on_request=True, tags=["control", "threads"]),
    scenario("control/passes", on_request=True, tags=["control"]),
    scenario("fake_tensor/add_meta", tags=["compile"]),
    scenario("meta_mm/linear", tags=["meta", "seed"]),
    scenario("meta_mm/matmul", tags=["meta"]),
]


@pytest.mark.parametrize(
    ("globs", "names"),
    [
        ([], ["fake_tensor/add_meta", "meta_mm/linear", "meta_mm/matmul"]),
        (["*"], ["fake_tensor/add_meta", "meta_mm/linear", "meta_mm/matmul"]),
        (["meta_mm/*"], ["meta_mm/linear", "meta_mm/matmul"]),
        (["meta_mm/m*", "fake_tensor/*"], ["fake_tensor/add_meta", "meta_mm/matmul"]),
        (["tag:meta"], ["meta_mm/linear", "meta_mm/matmul"]),
        (["tag:se*"], ["meta_mm/linear"]),
        (["*meta*"], ["fake_tensor/add_meta", "meta_mm/linear", "meta_mm/matmul"]),
        (["control/*"], ["control/hangs", "control/passes"]),
        (["control/hangs", "*"], ["control/hangs", "fake_tensor/add_meta", "meta_mm/linear", "meta_mm/matmul"]),
        (["tag:control"], ["control/hangs", "control/passes"]),
        (["scenarios/meta_mm/linear.py"], ["meta_mm/linear"]),
        (["./scenarios/meta_mm/linear.py"], ["meta_mm/linear"]),
        (["fake_tensor/add_meta.py"], ["fake_tensor/add_meta"]),
        (["/suite/fake_tensor/add_meta.py"], ["fake_tensor/add_meta"]),
        (["/suite/control/passes.py"], ["control/passes"]),
    ],
)
def test_globs_select(globs: list[str], names: list[str]) -> None:
    """Globs, tags and paths select; what runs on request does so only when its family is spelt out."""
    assert [case.name for case in select(SOME, globs)] == names
    assert select([], []) == []  # no glob at all is not one that matches nothing


@pytest.mark.parametrize(
    ("globs", "variants"),
    [
        (["meta_mm/linear[op=mm]"], [{"op": ("mm",), "grad": ("on", "off")}]),
        (["meta_mm/linear[op=mm,grad=off]"], [{"op": ("mm",), "grad": ("off",)}]),
        (
            ["meta_mm/linear[grad=on]", "meta_mm/linear[op=mm]", "meta_mm/linear[grad=on]"],
            [{"op": ("mm", "add"), "grad": ("on",)}, {"op": ("mm",), "grad": ("on", "off")}],
        ),
        (["meta_mm/linear[op=mm]", "meta_mm/*"], [{"op": ("mm", "add"), "grad": ("on", "off")}]),
        (["meta_mm/[a-l]inear"], [{"op": ("mm", "add"), "grad": ("on", "off")}]),
    ],
)
def test_brackets_narrow_to_variants(globs: list[str], variants: list[dict[str, tuple[str, ...]]]) -> None:
    """NAME[variant=value] runs just those variants; brackets without "=" stay a glob's own."""
    suite_of_one = [scenario("meta_mm/linear", variants={"op": ("mm", "add"), "grad": ("on", "off")})]
    assert [case.variants for case in select(suite_of_one, globs)] == variants


def test_unknown_variant_is_told_with_the_known() -> None:
    """A variant that a scenario does not have is a usage error that lists those it has."""
    suite_of_one = [scenario("meta_mm/linear", variants={"op": ("mm", "add")})]
    with pytest.raises(UsageError, match="no variant op=div") as caught:
        select(suite_of_one, ["meta_mm/linear[op=div]"])
    assert "op = mm | add" in caught.value.hint


@pytest.mark.parametrize(
    ("glob", "message"),
    [
        ("meta_mn/*", r"no scenario matches 'meta_mn/\*'\nhint: did you mean meta_mm/\*\?"),
        ("meta_mm/liner", r"hint: did you mean meta_mm/linear\?"),
        ("add_mta", r"hint: did you mean fake_tensor/add_meta\?"),
        ("meta_mm", r"hint: did you mean meta_mm/\*\?"),
        ("tag:sed", r"no scenario matches 'tag:sed'\nhint: did you mean tag:seed\?"),
        ("tag:zzz", r"hint: known tags are compile, control, meta, seed, threads"),
        ("zzz", r"hint: the families are control, fake_tensor, meta_mm"),
        ("*hangs", r"only scenarios that run on request match '\*hangs'\nhint: ask for them by family: control/\*"),
        ("tag:threads", r"only scenarios that run on request match 'tag:threads'"),
    ],
)
def test_a_glob_that_selects_nothing_gets_the_nearest(glob: str, message: str) -> None:
    """A typing mistake is answered with what was probably meant, even beside globs that match."""
    with pytest.raises(UsageError, match=message):
        select(SOME, ["fake_tensor/*", glob])


# Variants


def test_variants_are_multiplied_in_the_header_s_order() -> None:
    """The last variant changes first."""
    case = scenario("a/b", variants={"op": ("mm", "add"), "grad": ("on", "off")})
    assert variants_of(case) == [
        {"op": "mm", "grad": "on"},
        {"op": "mm", "grad": "off"},
        {"op": "add", "grad": "on"},
        {"op": "add", "grad": "off"},
    ]
    assert variants_of(scenario("a/b")) == [{}]


FACTORS = scenario("s", one_factor=True, variants={"op": ("mm", "add", "empty"), "gil": ("held", "released")})


def test_one_factor_at_a_time_differs_from_the_base() -> None:
    """The first value of each variant is the base; the other cells are the base but for one value."""
    assert selection.variants_of(FACTORS) == [
        {"op": "mm", "gil": "held"},
        {"op": "add", "gil": "held"},
        {"op": "empty", "gil": "held"},
        {"op": "mm", "gil": "released"},
    ]


@pytest.mark.parametrize(
    ("brackets", "variants"),
    [
        ("op=add", [("add", "held")]),
        ("op=mm", [("mm", "held"), ("mm", "released")]),
        ("op=add,gil=released", [("add", "released")]),
    ],
)
def test_brackets_narrow_one_factor_at_a_time(brackets: str, variants: list[tuple[str, str]]) -> None:
    """A value other than the base's leaves the others at theirs; a whole variant is run as it is spelt."""
    (narrowed,) = selection.select([FACTORS], [f"s[{brackets}]"])
    assert [tuple(each.values()) for each in selection.variants_of(narrowed)] == variants


def test_a_variant_reaches_the_script_by_its_name() -> None:
    """The variable is the name in capitals."""
    assert variant_environ({}) == {}
    assert variant_environ({"op": "mm", "grad_mode": "on"}) == {"WHICHTORCH_OP": "mm", "WHICHTORCH_GRAD_MODE": "on"}


# Expectations


def announced(version: str, specifier: str) -> bool:
    """Return True where an expectation for `specifier` applies to torch `version`."""
    line = {"torch": specifier, "outcome": "fail"}
    return expected(scenario("a/b", expect=[line]), {}, WHERE | {"torch": version}) is not None


@pytest.mark.parametrize(
    ("version", "specifier", "applies"),
    [
        ("2.11.0", "<2.12", True),
        ("2.12.0", "<2.12", False),
        ("2.11.0+cpu", "<=2.11.0", True),
        ("2.11.0+cu130", "==2.11.0", True),
        ("2.12.0+cpu", "<2.12", False),
        ("2.12.0.dev20260301+cpu", "<2.12", False),
        ("2.12.0.dev20260301+cpu", ">=2.12", True),
        ("2.12.0rc3", ">=2.12", True),
        ("2.12.0a0+git57726b7", ">=2.12", True),
        ("2.12.0.dev20260301", "<2.12.0.dev20260302", True),
        ("2.12.0.dev20260303", "<2.12.0.dev20260302", False),
        ("2.1.2", ">=2.2,<2.7", False),
        ("2.6.0", ">=2.2,<2.7", True),
        ("2.7.0", ">=2.2,<2.7", False),
        ("/wheels/torch.whl", "<2.12", False),
        ("", ">=2", False),
        ("/wheels/torch.whl", "", True),
    ],
)
def test_specifiers_choose_releases(version: str, specifier: str, applies: bool) -> None:
    """Local parts do not matter; a pre-release counts as its release unless the line names pre-releases."""
    assert announced(version, specifier) == applies


def test_the_first_line_that_applies_is_taken() -> None:
    """Exceptions stand before the rule; all that a line names must apply."""
    case = scenario(
        "a/b",
        variants={"threads": ("1", "2")},
        expect=[
            {"outcome": "pass", "config": "io*"},
            {"outcome": "skip", "python": ">=3.12", "build": "cu1??"},
            {"outcome": "hang", "variant": {"threads": "2"}},
        ],
    )

    def outcome(threads: str, python: str = "3.11.7", build: str = "pypi", config: str = "default") -> str | None:
        axes = {"torch": "2.11.0", "python": python, "build": build, "config": config}
        line = expected(case, {"threads": threads}, axes)
        return line.outcome if line else None

    assert outcome("2") == "hang"
    assert outcome("2", config="iomp") == "pass"
    assert outcome("1") is None
    assert outcome("1", python="3.12.1", build="cu128") == "skip"
    assert outcome("2", python="3.12.1", build="cpu") == "hang"
    assert outcome("2", python="", build="cu128") == "hang"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_is_expected(outcome: Outcome) -> None:
    """Only what was announced is expected: a pass is news too. A skip contradicts nothing, and says nothing new."""
    case = scenario("a/b", expect=[{"outcome": "hang", "torch": "<2.12"}])
    assert is_as_expected(outcome, expected(case, {}, WHERE | {"torch": "2.11.0"})) == (outcome in {"hang", "skip"})
    assert is_as_expected(outcome, expected(case, {}, WHERE | {"torch": "2.12.0"})) == (outcome in {"pass", "skip"})


def test_a_script_that_is_no_python_is_refused(tmp_path: Path) -> None:
    """No command runs a shell script, so none offers to run it again."""
    (tmp_path / "flagged.sh").write_text("python repro.py --fast\n")
    with pytest.raises(UsageError, match=r"flagged\.sh is not a Python script") as caught:
        selection.script(str(tmp_path / "flagged.sh"))
    assert ".py" in caught.value.hint

"""Which script a report is about: what is taken from its blocks, added and checked, in which order it is tried."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from whichtorch.answer import needs
from whichtorch.answer.claims import Claim, claims_of
from whichtorch.answer.report import read_report
from whichtorch.answer.script_candidates import candidates_in, checked
from whichtorch.suite.headers import read_scenario


def first(text: str) -> str:
    """Return the likeliest script of a report."""
    return candidates_in(read_report(text.encode()))[0].source


def scripts(text: str) -> list[str]:
    return [each.source for each in candidates_in(read_report(text.encode()))]


def fenced(*parts: tuple[str, str]) -> str:
    """Return a report of paragraphs, each with a block of Python."""
    return "".join(f"{words}\n\n```python\n{code}\n```\n\n" for words, code in parts)


PLAIN = "import torch\n\nprint(torch.ones(2))\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"Bug.\n\n```python\n{PLAIN}```\n", id="fence"),
        pytest.param(f"Bug.\n\n```\n{PLAIN}```\n", id="fence without a language"),
        pytest.param(f"Bug.\n\n~~~Python\n{PLAIN}~~~\n", id="tildes"),
        pytest.param("Bug:\n\n" + "".join(f"    {line}\n" for line in PLAIN.splitlines()), id="indented"),
        pytest.param(
            f"<details>\n<summary>code</summary>\n```py\n{PLAIN}```\n</details>\n", id="folded, no empty line"
        ),
        pytest.param(
            f"- first do this:\n\n  ```python\n  {PLAIN.replace(chr(10), chr(10) + '  ')}\n  ```\n", id="in a list"
        ),
        pytest.param("> ```python\n" + "".join(f"> {line}\n" for line in PLAIN.splitlines()) + "> ```\n", id="quoted"),
        pytest.param(f"It fails:\n{PLAIN}", id="no fence at all"),
        pytest.param(f"```python\n{PLAIN}tensor([1., 1.])  <- wrong\n```\n", id="output in the same block"),
        pytest.param(f"```bash\ncat > repro.py <<'EOF'\n{PLAIN}EOF\npython repro.py\n```\n", id="here-document"),
        pytest.param(json.dumps({"title": "It fails", "body": f"```python\r\n{PLAIN}```"}), id="JSON of an issue"),
        pytest.param(
            f"```python\n{PLAIN}```\n\n```\nTraceback (most recent call last):\nValueError: x\n```\n", id="log"
        ),
        pytest.param(f"It fails:\n\n{PLAIN}\nwith\n\n```\nValueError: x\n```\n", id="no fence, but for the log"),
        pytest.param(f"```\n$ python -c '{PLAIN}'\n```\n", id="python -c"),
        pytest.param(
            "```pytb\n>>> import torch\n>>> print(torch.ones(2))\ntensor([1., 1.])\n```", id="a session as a log"
        ),
        pytest.param(f"I call `python3 -c '{PLAIN}'` in a shell.", id="python -c in prose"),
    ],
)
def test_code_is_found_however_it_is_quoted(text: str) -> None:
    assert first(text).split() == PLAIN.split()


def test_a_session_becomes_a_script_that_prints_what_the_session_shows() -> None:
    session = [">>> import torch", ">>> x = torch.ones(2)", ">>> x.sum()", "tensor(2.)"]
    session += [">>> if True:", "...     print(x)", "...", "tensor([1., 1.])"]
    text = "\n".join(["```", *session, "```"])

    assert first(text).splitlines() == [
        "import torch",
        "x = torch.ones(2)",
        '__import__("sys").displayhook(x.sum())',
        "if True:",
        "    print(x)",
    ]


@pytest.mark.parametrize("prompt", [">>> ", "In [1]: ", "  >>> ", ">>>"])
def test_a_session_needs_no_fence(prompt: str) -> None:
    """Markdown takes its lines for quotes in quotes, and what it printed for their ends."""
    margin = " " * (len(prompt) - len(prompt.lstrip()))
    shown = [
        "tensor([[[1., 1.]],",
        "",
        "        [[1., 1.]]])",
        "",
        f"{prompt.strip()} torch.stack([])",
        "RuntimeError: no",
    ]
    lines = [f"{prompt}import torch", f"{prompt}torch.ones(2, 1, 2)", *(margin + line for line in shown)]
    text = "\n".join(["I see this:", "", *lines, "", "It is wrong."])

    (candidate,) = candidates_in(read_report(text.encode()))
    assert [line.partition("(torch")[0] for line in candidate.source.splitlines()] == [
        "import torch",
        '__import__("sys").displayhook',
        '__import__("sys").displayhook',
    ]
    assert claims_of(read_report(text.encode())).claim.words == "RuntimeError: no"


def test_a_quote_in_a_quote_is_no_session() -> None:
    assert candidates_in(read_report(b">>> I think that this\n>>> is a bug\n\nMe, too.\n")) == []


def test_a_session_of_ipython_is_read_as_well() -> None:
    session = ["In [1]: import torch", "", "In [2]: def f(x):", "   ...:     return x + 1", "   ...: ", ""]
    text = "\n".join(["```", *session, "In [3]: f(torch.ones(1))", "Out[3]: tensor([2.])", "```"])

    assert "def f(x):\n    return x + 1\n" in first(text)
    assert "displayhook(f(torch.ones(1)))" in first(text)


def test_imports_are_added_where_a_name_has_one_meaning_and_told() -> None:
    report = read_report(
        b"```python\nx = F.relu(nn.Linear(2, 2)(torch.ones(2)))\nprint(np.asarray(x.detach()), os.name)\n```\n"
    )
    (candidate,) = candidates_in(report)

    assert candidate.source.splitlines()[:5] == [
        "import numpy as np",
        "import os",
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
    ]
    assert "added: import torch.nn as nn" in candidate.added


def test_a_call_is_joined_with_the_definition_that_another_block_has() -> None:
    model = "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x"
    texts = [("The model:", model), ("And the call:", "print(M()(torch.ones(2)))")]
    text = fenced(*texts, ("For comparison, this works:", "print(torch.ones(2))"))

    assert first(text).index("class M") < first(text).index("print(M()")
    assert "print(torch.ones(2))\n" not in first(text)


def test_a_definition_that_follows_its_call_comes_first_in_the_script() -> None:
    text = fenced(("Run", "import torch\nprint(f(torch.ones(1)))"), ("where `f` is", "def f(x):\n    return x"))

    assert first(text).index("def f") < first(text).index("print(f")


def test_what_the_report_contrasts_with_is_tried_last() -> None:
    text = fenced(("This works:", "import torch\nprint(1)"), ("This fails:", "import torch\nprint(2)"))

    assert "print(2)" in first(text)
    assert "print(1)" in scripts(text)[-1]


def test_tests_that_nothing_calls_are_called() -> None:
    assert first("```python\nimport torch\ndef test_it():\n    assert torch.ones(1) == 2\n```").endswith("test_it()\n")


def test_tests_with_parameters_are_run_by_pytest() -> None:
    test = "@pytest.mark.parametrize('n', [1])\ndef test_it(n):\n    assert torch.ones(n) == 2"
    text = f"```python\nimport pytest, torch\n{test}\n```"

    assert "pytest.main([__file__" in first(text)


@pytest.mark.parametrize(
    ("text", "variables", "arguments"),
    [
        ("Run it as `python repro.py --threads 2`.", {}, ("--threads", "2")),
        ("```\n$ TORCH_LOGS=dynamo python3.11 -u repro.py\n```", {"TORCH_LOGS": "dynamo"}, ()),
        ("```bash\nexport TORCHINDUCTOR_FREEZING=1\npython x/repro.py\n```", {"TORCHINDUCTOR_FREEZING": "1"}, ()),
        ("`LD_PRELOAD=/tmp/evil.so HOME=/ python repro.py`", {}, ()),
        ("I call `python repro.py` and it fails.", {}, ()),
        ("Run it with `MODE=1` in the environment.", {"MODE": "1"}, ()),
        ("I set OMP_NUM_THREADS to 4. Then it hangs.", {"OMP_NUM_THREADS": "4"}, ()),
        ("`os.environ['MY_MODE'] = 'a b'` stands above it.", {"MY_MODE": "a b"}, ()),
        ("It needs `torch.set_num_threads(3)`.", {"OMP_NUM_THREADS": "3"}, ()),
        ("Setting `TORCHDYNAMO_DISABLE=1` is a workaround.", {}, ()),
        ("Without `MY_MODE=1` it works fine.", {"MY_MODE": "1"}, ()),
        ("```\n$ MY_MODE=1 \\\n  python repro.py --fast\n```", {"MY_MODE": "1"}, ("--fast",)),
        ("```\n$ A_B=1 uv run repro.py --fast\n```", {"A_B": "1"}, ("--fast",)),
        ("```\n$ A_B=1 ./repro.py\n```", {"A_B": "1"}, ()),
        ("```\n$ export A_B=1; python repro.py\n```", {"A_B": "1"}, ()),
        ("```\n%env A_B=1\n```", {"A_B": "1"}, ()),
        ("```\ndocker run -e A_B=1 image python repro.py 3\n```", {"A_B": "1"}, ("3",)),
        ("```\n$ python -W error -O repro.py\n```", {"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "1"}, ()),
        ("A workaround:\n\n```\nexport A_B=1\n```", {}, ()),
    ],
)
def test_the_way_in_which_a_report_starts_its_script_is_kept(
    text: str, variables: dict[str, str], arguments: tuple[str, ...]
) -> None:
    call = candidates_in(read_report(f"```python\n{PLAIN}```\n\n{text}\n".encode()))[0].call

    assert (dict(call.variables), call.arguments) == (variables, arguments)


def test_each_value_of_a_variable_is_tried_the_first_one_first() -> None:
    text = f"```python\n{PLAIN}```\n\nRun it with N_JOBS=4. If I run it with N_JOBS=1 instead, it ends.\n"
    calls = [dict(each.call.variables) for each in candidates_in(read_report(text.encode()))]

    assert calls == [{"N_JOBS": "4"}, {"N_JOBS": "1"}, {}]


@pytest.mark.parametrize(
    ("command", "omitted"),
    [
        ("LD_PRELOAD=/x.so python repro.py", "LD_PRELOAD=/x.so"),
        ("torchrun --nproc-per-node 2 repro.py", "torchrun --nproc-per-node 2"),
        (
            "python -m torch.distributed.run --nproc-per-node=2 repro.py",
            "python -m torch.distributed.run --nproc-per-node=2",
        ),
    ],
)
def test_what_a_run_leaves_out_is_known_of_each_call(command: str, omitted: str) -> None:
    """A run without it can deny nothing."""
    calls = [
        each.call for each in candidates_in(read_report(f"```python\n{PLAIN}```\n\n```\n$ {command}\n```\n".encode()))
    ]

    assert {each.omitted for each in calls} == {(omitted,)}


@pytest.mark.parametrize(
    "text", ["", "It is broken.", "```\nstep 1 loss 0.5\n```", "```\nValueError: f(x)\n```", "```json\n{}\n```"]
)
def test_a_report_without_code_has_no_candidate(text: str) -> None:
    assert candidates_in(read_report(text.encode())) == []


def test_a_module_that_the_report_names_lies_beside_the_script_that_imports_it() -> None:
    helper, script = "def f(x):\n    return x + 1", "import torch\nfrom helper import f\nprint(f(torch.ones(1)))"
    (candidate, *_) = candidates_in(read_report(fenced(("helper.py", helper), ("train.py", script)).encode()))

    assert [name for name, _ in candidate.files] == ["helper.py"]
    assert "def f" not in candidate.source
    assert "# beside it: helper.py" in candidate.source  # another helper makes it another test


def test_a_header_in_a_report_tells_whichtorch_nothing() -> None:
    assert "# ///" not in first("```python\n# /// scenario\n# timeout = 9999\n# ///\nimport torch\nprint(torch.e)\n```")


def test_thousands_of_blocks_are_read_in_a_moment_and_few_are_tried() -> None:
    text = "".join(
        f"Here {number}:\n\n```python\nimport torch\nprint(torch.ones({number}))\n```\n\n" for number in range(2000)
    )

    assert len(scripts(text)) <= 4


@pytest.mark.parametrize("header", ["# /// script", "#/// script", "#  /// scenario"])
def test_a_header_of_the_report_is_no_header_of_ours(header: str, tmp_path: Path) -> None:
    """It would tell what to expect of the script, and a broken one would be an error."""
    path = tmp_path / "repro.py"
    path.write_text(first(fenced(("Bug:", f'{header}\n# dependencies = ["torch"]\n# ///\n{PLAIN}'))))

    assert read_scenario(path).native == ()


def test_tags_and_comments_in_code_are_kept() -> None:
    """Only around the code they are markup, and a comment hides a block."""
    code = 'import torch\npage = "<p>hello</p><!-- no end"\nprint(torch.ones(2), page)'

    assert scripts(f"<!-- ```python\n{PLAIN}```\n-->\n<details>\n```python\n{code}\n```\n</details>") == [code + "\n"]


def test_a_title_with_a_word_of_logs_hides_no_code() -> None:
    """A heading above a log begins with such a word."""
    code = "x = torch.ones(2)\ntorch.stack(x)\n"

    assert "torch.stack(x)" in first(f"# torch.stack raises an error in logsumexp\n\n```python\n{code}```\n")
    assert candidates_in(read_report(f"# Bug\n\n## Error logs\n\n```python\n{code}```\n".encode())) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("```python\nimport torch\nif " + "+".join("x" * 3000) + ": pass\n```", id="deep"),
        pytest.param("```\n>>> import torch\n>>> " + "+".join("x" * 3000) + "\n1\n```", id="deep session"),
        pytest.param("a" * 100_000 + "/" * 100_000, id="no space"),
        pytest.param("torch" + ":" * 200_000, id="colons"),
        pytest.param("`" * 200_000, id="ticks"),
        pytest.param("<!--" * 50_000 + "```\n" * 50_000, id="open"),
        pytest.param("[" * 50_000 + "(" * 50_000, id="brackets"),
        pytest.param("```\n" + "torchrun " * 20_000 + "\n```", id="launchers"),
        pytest.param("python -c '" * 20_000, id="commands"),
        pytest.param(">>> a\n\n" * 2_000, id="sessions"),
        pytest.param("A_" * 9_000 + "a-1." * 9_000 + " " * 9_000, id="names"),
    ],
)
def test_what_no_reader_could_read_is_read_to_its_end(text: str) -> None:
    """It holds no script, and takes no minutes."""
    report = read_report(text.encode())
    claims_of(report)

    assert all(needs.hardware(each.tree, [report.whole]) == "" for each in candidates_in(report))


def test_half_a_character_is_left_out() -> None:
    """JSON can hold a surrogate alone, and no file can."""
    assert read_report(json.dumps({"title": "\ud83d x", "body": PLAIN}).encode()).title == " x"


def ended(source: str, claim: Claim, folder: Path) -> tuple[int, str]:
    """Run a script with the check of a claim, and return its exit code and what it wrote to stderr."""
    script = folder / "repro.py"
    script.write_text(checked(source, claim)[0])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("printed", "code"), [("count: 8", 1), ("count: 2", 0), ("count:  2", 0), ("count: 28", 1)])
def test_a_script_fails_unless_it_prints_what_is_expected(printed: str, code: int, tmp_path: Path) -> None:
    claim = Claim(expected="count: 2", seen="count: 8")

    assert ended(f"from __future__ import annotations\nprint({printed!r})\n", claim, tmp_path)[0] == code


@pytest.mark.parametrize(
    ("printed", "seen", "expected", "code"),
    [
        ("tensor([0.4311, 2.0000])", "tensor([0.4312, 2.0000])", "tensor([0.5000, 2.0000])", 1),  # the last digit
        ("tensor([0.5001, 2.0000])", "tensor([0.4312, 2.0000])", "tensor([0.5000, 2.0000])", 0),
        ("0.43121", "0.43122", "0.43121", 0),  # the report's own two values are as near as that
        ("step 1: 0.70 0.43", "0.43", "0.70", 1),
        ("1.0 2.0 2.1", "2.0 2.1", "", 1),
        ("3", "2", "", 0),  # whole numbers are exact
        ("tensor([3.])", "tensor([2.])", "", 0),
        ("-0.5", "0.5", "", 0),
        ("nan", "nan", "0.25", 1),
        ("1.0001e-05", "1.0002e-05", "3e-05", 1),
    ],
)
def test_numbers_count_up_to_their_last_digit(
    printed: str, seen: str, expected: str, code: int, tmp_path: Path
) -> None:
    """Another machine prints another last digit; what tells wrong from right is never taken for that."""
    assert ended(f"print({printed!r})\n", Claim(expected=expected, seen=seen), tmp_path)[0] == code


def test_the_failure_names_what_the_report_says_is_printed(tmp_path: Path) -> None:
    assert (
        "printed count: 8, expected count: 2"
        in ended("print('count: 8')", Claim(expected="count: 2", seen="count: 8"), tmp_path)[1]
    )


@pytest.mark.parametrize(("source", "code"), [("pass", 1), ("raise {}('x')", 0), ("raise KeyError('x')", 1)])
@pytest.mark.parametrize("name", ["ValueError", "AssertionError"])
def test_a_script_passes_if_it_raises_what_the_report_expects(
    source: str, code: int, name: str, tmp_path: Path
) -> None:
    claim = Claim(is_silent=True, exceptions=((name, ""),))

    assert ended(source.format(name), claim, tmp_path)[0] == code


@pytest.mark.parametrize("end", ["", "raise SystemExit", "import sys; sys.exit(0)", "exit()"])
def test_the_output_is_checked_however_the_script_ends(end: str, tmp_path: Path) -> None:
    """Many scripts end with a call of `sys.exit`."""
    claim = Claim(expected="4", seen="3")

    assert ended(f"print(3)\n{end}\n", claim, tmp_path)[0] == 1
    assert ended(f"print(4)\n{end}\n", claim, tmp_path)[0] == 0


def test_a_failure_of_the_script_itself_is_told_alone(tmp_path: Path) -> None:
    """What it printed before that is not checked."""
    code, stderr = ended("print(3)\n1 / 0\n", Claim(expected="4", seen="3"), tmp_path)

    assert (code, stderr.count("Traceback"), "ZeroDivisionError" in stderr) == (1, 1, True)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_that_the_script_starts_are_not_checked(start: str, tmp_path: Path) -> None:
    """They print another text than the script."""
    source = f"""
import multiprocessing

def work():
    print("busy")

if __name__ == "__main__":
    child = multiprocessing.get_context({start!r}).Process(target=work)
    child.start()
    child.join()
    print(child.exitcode + 4)
"""
    assert ended(source, Claim(expected="4", seen="3"), tmp_path)[0] == 0


def test_another_claim_changes_nothing() -> None:
    assert checked("print(1)\n", Claim()) == ("print(1)\n", ())

"""Chains of exceptions, as Python writes them."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtorch.failures.tracebacks import last_words, read_chain, read_exception, shortened


def chain_of(tmp_path: Path, source: str) -> list[tuple[str, str]]:
    """Return types and messages of what a script writes when it ends."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(source))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return [(link.type, link.message) for link in read_chain(done.stderr)]


def test_a_cause_follows_its_effect(tmp_path: Path) -> None:
    """Both ways of chaining count, and what was handled before does not."""
    source = """
        import sys, traceback
        try:
            {}["printed"]
        except KeyError:
            traceback.print_exc()
        try:
            try:
                1 / 0
            except ZeroDivisionError as error:
                raise ValueError("first\\n  second line") from error
        except ValueError:
            raise RuntimeError("at the end")
        """
    assert chain_of(tmp_path, source) == [
        ("RuntimeError", "at the end"),
        ("ValueError", "first\n  second line"),
        ("ZeroDivisionError", "division by zero"),
    ]


def test_frames_are_innermost_first_and_show_their_source(tmp_path: Path) -> None:
    """A frame has file, line, function and the source line, if the file can be read."""
    script = tmp_path / "script.py"
    script.write_text("def inner():\n    raise ValueError('no')\n\n\ninner()\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    (link,) = read_chain(done.stderr)
    assert [(frame.function, frame.line, frame.source) for frame in link.frames] == [
        ("inner", 2, "raise ValueError('no')"),
        ("<module>", 5, "inner()"),
    ]
    assert {frame.file for frame in link.frames} == {str(script)}


def test_what_a_worker_reports_is_a_cause() -> None:
    """The exception of another process stands within the message of the one that passes it on."""
    stderr = textwrap.dedent(
        """\
        Traceback (most recent call last):
          File "script.py", line 9, in <module>
        RuntimeError: Caught AttributeError in worker process 0.
        Original Traceback (most recent call last):
          File "script.py", line 4, in __getitem__
        AttributeError: 'Rows' object has no attribute 'rows'
        """
    )
    links = read_chain(stderr)
    assert [link.name for link in links] == ["RuntimeError", "AttributeError"]
    assert links[1].frames[0].function == "__getitem__"


LONG = "\n".join(f"header.h:{number}: error: no such type" for number in range(3000))
CHAINED = (
    "warning\nTraceback (most recent call last):\nKeyError: 1\n\n"
    "The above exception was the direct cause of the following exception:\n\n"
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\nCompileError: it fails\n'
    f"{LONG}\nbye\n"
)


def test_long_message_keeps_its_exception() -> None:
    """The exception of a compiler that says much, its cause, and the end of what it says are kept."""
    short = shortened("warning\n" * 3000 + CHAINED, 4000)
    assert [link.type for link in read_chain(short)] == ["CompileError", "KeyError"]
    assert len(short) < 4100
    assert short.endswith("header.h:2999: error: no such type\nbye\n")
    assert "characters cut here" in short


def test_long_message_of_a_worker_keeps_the_exception_around_it() -> None:
    """A traceback that a message quotes is none of its own."""
    quoted = "Original Traceback (most recent call last):\nKeyError: 1"
    stderr = f"Traceback (most recent call last):\nRuntimeError: Caught KeyError\n{quoted}\n{LONG}\n"
    assert [link.type for link in read_chain(shortened(stderr, 4000))] == ["RuntimeError", "KeyError"]


@pytest.mark.parametrize("text", ["", "short", "x" * 9000, CHAINED + "y" * 9000])
def test_end_is_kept_where_no_long_message_ends_it(text: str) -> None:
    """What is short is kept whole, and of what ends in other words than those of an exception the end."""
    kept = shortened(text, 4000)
    assert text.endswith(kept[-2000:])
    assert len(kept) <= 4100


@pytest.mark.parametrize(
    ("source", "type_", "line"),
    [
        ("x = 1\nprint('a'\n", "SyntaxError", 2),
        ("if 1:\nprint(2)\n", "IndentationError", 2),
        ("if 1:\n\tx = 1\n        y = 2\n", "TabError", 3),
    ],
)
def test_a_script_that_python_cannot_read_has_an_exception(tmp_path: Path, source: str, type_: str, line: int) -> None:
    """Python names its line without a traceback, and that of a module that it imports below the import."""
    (tmp_path / "helper.py").write_text(source)
    (tmp_path / "script.py").write_text("import helper\n")
    for name, lines in (("helper.py", [line]), ("script.py", [line, 1])):
        done = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, check=False)
        raised = read_exception(done.stderr)
        assert raised is not None
        assert raised.type == type_
        assert [frame.line for frame in raised.frames if frame.is_users] == lines


@pytest.mark.parametrize("margin", ["[rank0]: ", "[rank12]:"])
def test_a_traceback_of_a_rank_is_read(margin: str) -> None:
    """torch.distributed writes the rank before each of its lines."""
    text = 'Traceback (most recent call last):\n  File "train.py", line 3, in f\n    g()\nValueError: no\n'
    raised = read_exception("".join(margin + line for line in text.splitlines(keepends=True)))
    assert raised is not None
    assert (raised.type, raised.message, raised.frames[0].line) == ("ValueError", "no", 3)


def test_a_group_of_exceptions_is_read(tmp_path: Path) -> None:
    """Its traceback has a margin, and it is the exception that ended the script."""
    ((type_, message),) = chain_of(tmp_path, "raise ExceptionGroup('several', [ValueError('one')])")
    assert type_ == "ExceptionGroup"
    assert message.startswith("several (1 sub-exception)")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("cannot open größe.bin\n", "started\n"), "cannot open größe.bin"),
        (("/env/torch/x.py:3: UserWarning: slow\n  warnings.warn('slow')\n", "2 of 3 agree\n\n"), "2 of 3 agree"),
        (("[W1124 18:33:56.1 a.cpp:12] Warning: slow\n", "no\n"), "no"),
        (("WARNING:root:slow\n", "no\n"), "no"),
        (("bad size\n  +-----+\n", ""), "bad size"),
        (("", ""), ""),
    ],
)
def test_the_last_words_are_those_of_the_script(texts: tuple[str, str], words: str) -> None:
    """Warnings and rules are none, and what it wrote to stdout counts where stderr has nothing else."""
    assert last_words(*texts) == words


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    """Whatever a script writes, there is an answer, and none without a traceback or a SyntaxError."""
    assert read_chain(text) == () or "Traceback (most recent call last):" in text or "Error: " in text

"""Read the comment header that says what a scenario is.

The header is a comment block as in PEP 723, of type `scenario`, holding TOML:

    # /// scenario
    # summary = "linear on the meta device"
    # [variants]
    # grad = ["on", "off"]
    # ///

Unlike in PEP 723 the first `# ///` ends it, so that a block of another type may follow at once.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import ValidationError

from matrix.errors import UsageError
from matrix.model import Condition, Expectation, Outcome, Scenario
from matrix.suite.toml_lines import line_of, line_of_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic_core import ErrorDetails

    Note = Callable[[int, str], None]  # line of the file, what is wrong and its remedy

SUITE_ROOT = Path(__file__).absolute().parents[2] / "scenarios"
VARIABLE_PREFIX = "WHICHTORCH_"

_START = "# /// scenario"
_END = "# ///"
_MARKER = re.compile(r"#\s*///\s*(\w+)\s*")
_GIVEN = {"name", "path", "source_hash", "in_suite"}  # follow from the file, not from its header
_KEYS = [name for name in Scenario.model_fields if name not in _GIVEN]
_NESTED_KEYS = {"expect": list(Expectation.model_fields), "conditions": list(Condition.model_fields)}
_VARIANT_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN_VARIANTS = {
    "attempt",
    "home",
    "hooks",
    "native",
    "observe",
}  # WHICHTORCH_<NAME> variables with a meaning of their own

_REMEDIES = {  # by pydantic's type of the mistake
    "missing": "is missing",
    "greater_than": "must be more than 0",
    "tuple_type": "must be a list, in [brackets]",
    "dict_type": "must be a table of names and values",
    "model_type": "must be a table, in {braces}",
    "model_attributes_type": "must be a table, in {braces}",
    "string_type": "must be text, in quotes",
    "float_type": "must be a number without quotes",
    "int_type": "must be a whole number without quotes",
    "bool_type": "must be true or false, without quotes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One thing wrong with one file. `line` is of the file, counted from 1."""

    path: Path
    line: int
    message: str  # with its remedy

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class ScenarioError(UsageError):
    """Headers with mistakes. Holds all of them, so that one look at the message mends them all."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: (mistake.path, mistake.line)))
        count = "1 mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        lines = "".join(f"\n  {mistake}" for mistake in self.mistakes)
        super().__init__(f"{count} in scenario headers:{lines}", hint=f"a header may have {', '.join(_KEYS)}")


@dataclass(frozen=True, slots=True)
class _Header:
    """The TOML text of a header and where it stands. `first` is the file's line of its first line."""

    text: str
    first: int

    def line_of(self, *place: str | int) -> int:
        """Return the file's line of the key at `place`."""
        return self.first + line_of(self.text, place)


def read_scenario(path: Path, name: str | None = None) -> Scenario:
    """Read a script and its header; a script without one gets the defaults.

    It is called `name`, or else by its place in the suite, or else by its path. Raises UsageError if it
    cannot be read, ScenarioError with every mistake of its header.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        hint = "give the path of a Python script"
        raise UsageError(f"cannot read the script {path}: {error.strerror}", hint=hint) from None
    whole = path.resolve()
    in_suite = whole.is_relative_to(SUITE_ROOT.resolve()) and whole.parent != SUITE_ROOT.resolve()
    if name is None:
        name = f"{path.parent.name}/{path.stem}" if in_suite else path.as_posix()
    identity = {
        "name": name,
        "path": str(path.absolute()),
        "source_hash": "",
        "in_suite": in_suite,
    }
    # a script may be in another encoding, but its header is in UTF-8
    text = source.decode("utf-8-sig", errors="replace")
    # not splitlines(), which also splits at what may stand in TOML
    lines = re.split(r"\r\n|\r|\n", text.rstrip("\r\n"))
    mistakes: list[Mistake] = []

    def note(line: int, message: str) -> None:
        mistakes.append(Mistake(path=path, line=line, message=message))

    header = _find(lines, note)
    table: dict[str, Any] = {}
    if header is not None:
        try:
            table = tomllib.loads(header.text)
        except tomllib.TOMLDecodeError as error:
            line, message = line_of_error(error, header.text)
            note(header.first + line, f"not TOML: {message}")
        else:
            _check(header, table, note)
            source += b"".join(_native_sources(header, table, path.parent, note))
    identity["source_hash"] = hashlib.sha256(source).hexdigest()[:12]
    scenario = None
    try:
        scenario = Scenario.model_validate_json(json.dumps(table | identity, default=str), strict=True)
    except ValidationError as error:
        assert header is not None
        for detail in error.errors():
            note(header.line_of(*detail["loc"]), _described(detail))
    if mistakes or scenario is None:
        raise ScenarioError(mistakes)
    return scenario


def _find(lines: list[str], note: Note) -> _Header | None:
    """Return the header among a script's lines. Says what is wrong with how it is marked."""
    starts = [number for number, line in enumerate(lines) if line.rstrip() == _START]
    for number, line in enumerate(lines):
        found = _MARKER.fullmatch(line)
        is_near = found and difflib.get_close_matches(found[1], ["scenario"], cutoff=0.8)
        if is_near and number not in starts:
            note(number + 1, f"{line.strip()!r} starts no header; did you mean {_START!r}?")
    if not starts:
        return None
    for number in starts[1:]:
        note(number + 1, f"a second header; the first is in line {starts[0] + 1}: join the two")
    content = []
    for number, line in enumerate(lines[starts[0] + 1 :], starts[0] + 2):
        if line.rstrip() == _END:
            break
        if line.rstrip() != "#" and not line.startswith("# "):
            note(number, f"the header has no end; write {_END!r} before this line, or start it with '# '")
            break
        content.append(line[2:])
    else:
        note(len(lines), f"the header has no end; write {_END!r} after its last line")
    return _Header("\n".join(content) + "\n", starts[0] + 2)


def _check(header: _Header, table: dict[str, Any], note: Note) -> None:
    """Say what is wrong beyond shape, and leave `table` as pydantic is to judge it."""
    for key in [key for key in table if key not in _KEYS]:
        note(header.line_of(key), f"{key}: unknown key; {_nearest(key, _KEYS)}")
        del table[key]
    _numbers_to_text(table.get("variants"))
    variants = table.get("variants")
    variants = variants if isinstance(variants, dict) else {}
    for name, values in variants.items():
        line = header.line_of("variants", name)
        if not _VARIANT_NAME.fullmatch(name):
            note(line, f"variants.{name}: names are lower-case letters, digits and _, as in grad_mode")
        elif name in _TAKEN_VARIANTS:
            note(
                line,
                f"variants.{name}: taken, as are {', '.join(sorted(_TAKEN_VARIANTS))}; choose another",
            )
        if values == []:
            note(line, f"variants.{name}: has no values; list some or leave it out")
        elif isinstance(values, list) and len({str(value) for value in values}) < len(values):
            note(line, f"variants.{name}: has a value twice; leave one out")
    for key in ("expect", "conditions"):
        for number, row in enumerate(_rows(table, key)):
            _numbers_to_text(row.get("variant"))
            wrong = _wrong_in_expectation(row, variants) if key == "expect" else _wrong_variant(row, variants)
            for place, message in wrong:
                note(header.line_of(key, number, place), f"{key}.{number}.{place}: {message}")
    timeout = table.get("timeout")
    if isinstance(timeout, float) and not math.isfinite(timeout):
        note(header.line_of("timeout"), "timeout: must be finite; a hang is a hang after minutes")
        del table["timeout"]
    links = table.get("links")
    for link in links if isinstance(links, list) else []:
        if isinstance(link, str) and not link.startswith(("https://", "http://")):
            note(header.line_of("links"), f"links: {link!r} is not a URL; write it out from https:// on")


def _native_sources(header: _Header, table: dict[str, Any], folder: Path, note: Note) -> Iterator[bytes]:
    """Yield what the native sources hold, for the hash of a scenario follows them too; say which are missing."""
    names = table.get("native")
    for name in names if isinstance(names, list) else []:
        if not isinstance(name, str):
            continue  # pydantic's to tell
        try:
            yield b"\0" + (folder / name).read_bytes()
        except (OSError, ValueError):  # ValueError: a null byte in the name
            note(header.line_of("native"), f"native: there is no file {name!r} beside the script")


def _wrong_in_expectation(row: dict[str, Any], variants: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield key and message of what can never apply."""
    for key, example in {"torch": "<2.12", "python": ">=3.12"}.items():
        value = row.get(key, "")
        if isinstance(value, str):
            try:
                SpecifierSet(value)
            except InvalidSpecifier:
                yield key, f"{value!r} is not a specifier such as {example!r}"
    yield from _wrong_variant(row, variants)


def _wrong_variant(row: dict[str, Any], variants: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield key and message of a variant that is never run."""
    chosen = row.get("variant")
    for name, value in chosen.items() if isinstance(chosen, dict) else ():
        if name not in variants:
            yield "variant", f"there is no variant {name!r}; {_nearest(name, list(variants))}"
        elif isinstance(variants[name], list) and value not in variants[name]:
            known = [str(each) for each in variants[name]]
            yield "variant", f"{name} is never {value!r}; {_nearest(str(value), known)}"


def _rows(table: dict[str, Any], key: str) -> list[dict[str, Any]]:
    rows = table.get(key)
    return [row if isinstance(row, dict) else {} for row in rows] if isinstance(rows, list) else []


def _numbers_to_text(table: Any) -> None:
    """Write the whole numbers of a table of variants as text: `threads = [1, 2]` is natural in TOML."""

    def text(value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    if isinstance(table, dict):
        for name, value in table.items():
            table[name] = [text(each) for each in value] if isinstance(value, list) else text(value)


def _described(detail: ErrorDetails) -> str:
    """Return one of pydantic's findings as place, what is wrong, remedy."""
    place = [str(part) for part in detail["loc"]]
    message = _REMEDIES.get(detail["type"], detail["msg"])
    if detail["type"] == "extra_forbidden":
        message = f"unknown key; {_nearest(place[-1], _NESTED_KEYS.get(place[0], []))}"
    elif detail["type"] == "literal_error":
        message = f"must be {detail['ctx']['expected']}"
    elif detail["type"] == "enum":
        message = f"{detail['input']!r} is not an outcome; {_nearest(str(detail['input']), list(Outcome))}"
    return f"{'.'.join(place)}: {message}"


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {str(near[0])!r}?"
    return f"known here: {', '.join(known)}" if known else "none is declared here"

"""Read the comment header that says what a scenario is.

The header is a comment block as in PEP 723, of type `scenario`, holding TOML:

    # /// scenario
    # summary = "linear on the meta device"
    # [variants]
    # grad = ["on", "off"]
    # ///

Unlike in PEP 723 the first `# ///` ends it, so that a block of another type may follow at once. A block of type
`script` is read, too: it says which packages and which Python a script needs.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import ValidationError

from whichtorch.base.errors import UsageError
from whichtorch.model import Condition, Expectation, Outcome, Scenario
from whichtorch.source.syntax import uncalled_tests
from whichtorch.suite.chain import RUNS, Chain, is_chain_key
from whichtorch.suite.companions import local_modules
from whichtorch.suite.toml_lines import line_of, line_of_error, parsed

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SUITE_ROOT = Path(__file__).absolute().parents[1] / "scenarios"
VARIABLE_PREFIX = "WHICHTORCH_"
NATIVE_BYTES = 10_000_000  # of all native sources of a script

_START = "# /// "
_END = "# ///"
_MARKER = re.compile(r"#\s*///\s*(\w+)\s*")
_GIVEN = {"name", "path", "source_hash", "in_suite", "folder", "data", "has_timeout", "requires_python", "sandboxed"}
_GIVEN |= {"uncalled", "command", "only"}  # none of these is a key of a header
_KEYS = [name for name in Scenario.model_fields if name not in _GIVEN]
_NESTED_KEYS = {"expect": list(Expectation.model_fields), "conditions": list(Condition.model_fields)}
_VARIANT_NAME = re.compile(r"[a-z][a-z0-9_]*")
# WHICHTORCH_<NAME> variables with another meaning: a variant of that name would hide them, or be hidden
_TAKEN_VARIANTS = {
    "accesses", "attempt", "brief_exit", "command", "fetch", "functions", "home", "hooks", "ladder", "native",
    "observe", "measure", "operators", "pytorch_index", "stacks", "tests",
}  # fmt: skip

_REMEDIES = {  # by pydantic's type of the mistake
    "missing": "is missing",
    "greater_than": "must be more than 0",
    "finite_number": "must be finite; minutes are enough to see a hang",
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
    """A mistake in a header. `line` is the line of the file, counted from 1."""

    path: Path
    line: int
    message: str  # with its remedy

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class ScenarioError(UsageError):
    """The mistakes of one or more headers, all of them, so that they can be corrected in one go."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: (mistake.path, mistake.line)))
        count = "1 mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        lines = "".join(f"\n  {mistake}" for mistake in self.mistakes)
        super().__init__(f"{count} in scenario headers:{lines}", hint=f"a header may have {', '.join(_KEYS)}")


class _Header:
    """The TOML of a script's header, or its block of another type, empty where it has none, and the mistakes in it."""

    def __init__(self, path: Path, source: bytes, kind: str = "scenario") -> None:
        self.path, self.kind = path, kind
        self.mistakes: list[Mistake] = []
        # a script may be in another encoding, but its header is in UTF-8
        text = source.decode("utf-8-sig", errors="replace")
        # not splitlines(), which also splits at characters that TOML allows in a line
        self.first, self.text = self._find(re.split(r"\r\n|\r|\n", text.rstrip("\r\n")))
        self.table: dict[str, Any] = {}
        try:
            self.table = parsed(self.text)
        except tomllib.TOMLDecodeError as error:
            line, message = line_of_error(error, self.text)
            self._note_line(self.first + line, f"not TOML: {message}")

    def note(self, message: str, *keys: str | int) -> None:
        """Note a mistake at a key, given as the names of tables and the indices of elements that lead to it."""
        self._note_line(self.first + line_of(self.text, keys), f"{'.'.join(map(str, keys))}: {message}")

    def _note_line(self, line: int, message: str) -> None:
        self.mistakes.append(Mistake(path=self.path, line=line, message=message))

    def _find(self, lines: list[str]) -> tuple[int, str]:
        """Return the header's TOML, and the line of the file at which it begins. Note mistakes in its marks."""
        start = _START + self.kind
        starts = [index for index, line in enumerate(lines) if line.rstrip() == start]
        for index, line in enumerate(lines):
            marker = _MARKER.fullmatch(line)
            is_near = marker and difflib.get_close_matches(marker[1], [self.kind], cutoff=0.8)
            if is_near and index not in starts:
                self._note_line(index + 1, f"{line.strip()!r} starts no header; did you mean {start!r}?")
        if not starts:
            return 1, ""
        for index in starts[1:]:
            self._note_line(index + 1, f"a second header; the first is in line {starts[0] + 1}: join the two")
        first = starts[0] + 2
        content = []
        for number, line in enumerate(lines[first - 1 :], first):
            if line.rstrip() == _END:
                break
            if line.rstrip() != "#" and not line.startswith("# "):
                message = f"the header has no end; write {_END!r} before this line, or start it with '# '"
                self._note_line(number, message)
                break
            content.append(line[2:])
        else:
            self._note_line(len(lines), f"the header has no end; write {_END!r} after its last line")
        return first, "\n".join(content) + "\n"


def read_scenario(path: Path, name: str | None = None) -> Scenario:
    """Read a script and its header; a script without a header gets the defaults.

    Without `name` it is called by its place in the suite, and outside the suite by its path. Raises UsageError if it
    cannot be read, ScenarioError with all mistakes of its header.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        hint = "give the path of a Python script"
        raise UsageError(f"cannot read the script {path}: {error.strerror}", hint=hint) from None
    resolved, root = path.resolve(), SUITE_ROOT.resolve()
    in_suite = resolved.is_relative_to(root) and resolved.parent != root
    if name is None:
        name = f"{path.parent.name}/{path.stem}" if in_suite else path.as_posix()
    header = _Header(path, source)
    block = _Header(path, source, "script")
    needs = _script_needs(header, block)
    _check(header)
    uncalled = () if in_suite else uncalled_tests(source)
    source += b"".join(_native_sources(header))
    for module, text in sorted(local_modules(path).items()):  # a changed helper makes it another test
        source += b"\0" + module.encode() + b"\0" + text
    source_hash = hashlib.sha256(source).hexdigest()[:12]
    given = {"name": name, "path": str(path.absolute()), "source_hash": source_hash, "in_suite": in_suite}
    given |= {"uncalled": uncalled, **needs}
    try:
        scenario = Scenario.model_validate_json(json.dumps(header.table | given, default=str), strict=True)
    except ValidationError as error:
        for detail in error.errors():
            header.note(_message(detail), *detail["loc"])
    if mistakes := [*header.mistakes, *block.mistakes]:
        raise ScenarioError(mistakes)
    return scenario


def _script_needs(header: _Header, block: _Header) -> dict[str, Any]:
    """Return the packages and the Python that a script needs; note what is no requirement and no specifier."""
    texts = [*_requirements(header, "requirements"), *_requirements(block, "dependencies")]
    python = block.table.get("requires-python", "")
    try:
        SpecifierSet(python)
    except (InvalidSpecifier, TypeError, AttributeError):
        block.note(f"{python!r} is not a specifier such as '>=3.11'", "requires-python")
        python = ""
    return {"requirements": texts, "requires_python": python}


def _requirements(header: _Header, key: str) -> Iterator[str]:
    texts = header.table.get(key, [])
    if not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
        header.note("must be a list of texts in quotes, in [brackets]", key)
        return
    for index, text in enumerate(texts):
        try:
            Requirement(text)
        except InvalidRequirement as error:
            header.note(f"{text!r} is not a requirement: {str(error).splitlines()[0]}", key, index)
        else:
            yield text


def _check(header: _Header) -> None:
    """Note mistakes that types do not show, and leave in the table what pydantic is to check."""
    table = header.table
    for key in table.keys() - _KEYS:
        header.note(f"unknown key; {_nearest(key, _KEYS)}", key)
        del table[key]
    variants = _numbers_as_text(table, "variants")
    for name, values in variants.items():
        _check_variant(header, name, values, RUNS in variants)
    _check_chain(header, variants if RUNS in variants else {})
    for key in ("expect", "conditions"):
        for index, row in enumerate(_list_at(table, key)):
            if isinstance(row, dict):
                _check_row(header, row, variants, (key, index))
    table["has_timeout"] = "timeout" in table
    for link in _list_at(table, "links"):
        if isinstance(link, str) and not link.startswith(("https://", "http://")):
            header.note(f"{link!r} is not a URL; write it out from https:// on", "links")


def _check_variant(header: _Header, name: str, values: Any, is_chain: bool) -> None:
    if not (_VARIANT_NAME.fullmatch(name) or (is_chain and is_chain_key(name))):
        header.note("names are lower-case letters, digits and _, as in grad_mode", "variants", name)
    elif name in _TAKEN_VARIANTS:
        header.note(f"taken, as are {', '.join(sorted(_TAKEN_VARIANTS))}; choose another", "variants", name)
    if values == []:
        header.note("has no values; list some or leave it out", "variants", name)
    elif isinstance(values, list) and len(set(map(str, values))) < len(values):
        header.note("has a value twice; leave one out", "variants", name)


def _check_chain(header: _Header, variants: dict[str, Any]) -> None:
    """Note where the values of `runs`, and of variables that differ between runs, make no chain."""
    own = {name: values for name, values in variants.items() if is_chain_key(name) and isinstance(values, list)}
    own.setdefault(RUNS, [])  # where it is no list, which pydantic reports
    for name, values in own.items():
        for value, runs in itertools.product(values, own[RUNS]):
            try:
                Chain.of({RUNS: str(runs), name: str(value)})
            except UsageError as error:
                header.note(f"{error.message}; {error.hint}", "variants", name)
                break


def _check_row(header: _Header, row: dict[str, Any], variants: dict[str, Any], keys: tuple[str, int]) -> None:
    """Note what can never apply in a row of `expect` or `conditions`: a variant that is never run."""
    for name, value in _numbers_as_text(row, "variant").items():
        if name not in variants:
            header.note(f"there is no variant {name!r}; {_nearest(name, list(variants))}", *keys, "variant")
        elif isinstance(variants[name], list) and value not in variants[name]:
            known = [str(each) for each in variants[name]]
            header.note(f"{name} is never {value!r}; {_nearest(str(value), known)}", *keys, "variant")


def native_source(script: Path, name: str, most_bytes: int = NATIVE_BYTES) -> bytes:
    """Return the contents of a native source. Raises ValueError for all but a file in the script's folder, or below it.

    The tool reads it outside of the sandbox that the script may run in, so a stranger's header must not lead it to
    other files of the user's, nor to a device without an end.
    """
    try:
        folder = script.parent.resolve()
        path = (folder / name).resolve()  # a link in the folder may lead out of it
        if not Path(name).is_absolute() and path.is_relative_to(folder) and path.is_file():
            with path.open("rb") as file:
                content = file.read(most_bytes + 1)
            if len(content) <= most_bytes:
                return content
    except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle; ValueError: a null byte in the name
        pass
    most = f"{NATIVE_BYTES / 1e6:.0f} MB"
    raise ValueError(f"{name!r} is no file in the script's folder, or all sources are larger than {most}")


def _native_sources(header: _Header) -> Iterator[bytes]:
    """Yield the contents of the native sources, since a scenario's hash covers them too. Note those it cannot have."""
    room = NATIVE_BYTES
    for name in _list_at(header.table, "native"):
        if not isinstance(name, str):
            continue  # pydantic reports it
        try:
            content = native_source(header.path, name, room)
        except ValueError as error:
            header.note(str(error), "native")
        else:
            room -= len(content)
            yield b"\0" + content


def _list_at(table: dict[str, Any], key: str) -> list[Any]:
    value = table.get(key)
    return value if isinstance(value, list) else []


def _numbers_as_text(table: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a table of variants, its whole numbers turned into text: `threads = [1, 2]` is natural in TOML."""

    def text(value: Any) -> Any:
        if isinstance(value, list):
            return [text(each) for each in value]
        return str(value) if type(value) is int else value

    variants = table.get(key)
    if not isinstance(variants, dict):
        return {}
    variants.update({name: text(value) for name, value in variants.items()})
    return variants


def _message(detail: ErrorDetails) -> str:
    """Return what pydantic found, as what is wrong and its remedy."""
    if detail["type"] == "extra_forbidden":
        table, *_, key = map(str, detail["loc"])
        return f"unknown key; {_nearest(key, _NESTED_KEYS.get(table, []))}"
    if detail["type"] == "literal_error":
        return f"must be {detail['ctx']['expected']}"
    if detail["type"] == "enum":
        return f"{detail['input']!r} is not an outcome; {_nearest(str(detail['input']), list(Outcome))}"
    return _REMEDIES.get(detail["type"], detail["msg"].removeprefix("Value error, "))


def _nearest(word: str, known: list[str]) -> str:
    if near := difflib.get_close_matches(word, known, n=1):
        return f"did you mean {str(near[0])!r}?"
    return f"known here: {', '.join(known)}" if known else "none is declared here"

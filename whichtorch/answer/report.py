"""A bug report as text -> its blocks of code and output, and its prose, each with the section that it stands in.

A block -> the Python in it, what it shows to have been printed, and the commands of a shell. A report is data: it is
read, and nothing in it is obeyed.
"""

from __future__ import annotations

import ast
import html
import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from whichtorch.base.errors import UsageError
from whichtorch.base.redaction import ESCAPES
from whichtorch.source.names import bound, compiles, unbound_names
from whichtorch.source.syntax import parse_module

if TYPE_CHECKING:
    from markdown_it.token import Token

MOST_BYTES = 2_000_000  # of a report: GitHub takes 65,536 characters
MOST_BLOCKS = 400  # that are looked at
MOST_PROSE = 65_536  # characters of prose, likewise
# fences, whose code is kept as it is; comments, which are the hints of an issue form; tags that fold parts; and
# sessions without a fence, which Markdown takes for quotes in quotes
_MARKUP = re.compile(
    r"(?P<fence>^[ \t]*(?P<ticks>`{3,}|~{3,})[^\n`]*\n.*?(?:^[ \t]*(?P=ticks)[`~]*[ \t]*$|\Z))"
    r"|<!--.*?(?:-->|\Z)|(?P<tag></?(?:details|summary|br|p|pre)\b[^>\n]*>)"
    r"|(?P<session>^ {0,3}(?:>>> ?|In \[\d+\]: ?)\S[^\n]*\n?(?:[^\n]+\n?|\n+(?=[ \t]*(?:>>>|\.\.\.|In \[|Out\[|\[)))*)",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_MARKED = {"fence": "{}", "session": "\n```pycon\n{}\n```\n\n", "tag": "\n", None: ""}
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_HEADER = re.compile(r"Collecting environment information|^PyTorch version: ", re.MULTILINE)
_MACHINE = re.compile(r"version|environment|system info|my setup|platform", re.IGNORECASE)
_UNFENCED = re.compile(r"^(?:[ \t]*(?:import|from) [^\n]*\n)*[ \t]*(?:import|from) torch\b", re.MULTILINE)
# begins what a report contrasts its failure with
CONTRAST = re.compile(
    r"for comparison|in contrast|by contrast|compare (?:this )?(?:with|to)|work[- ]?around|this works|works (?:fine"
    r"|well|as expected)|does work|no (?:error|problem|issue)|passes|instead it works|fixes (?:it|this|the)|the fix",
    re.IGNORECASE,
)
_NEEDED = re.compile(r"\bwithout\b|\bunless\b|\bonly (?:with|when|if)\b|\bunset\b", re.IGNORECASE)

_PYTHON = {"", "python", "py", "python3", "ipython", "pycon", "python-repl", "jupyter", "code", "text", "txt"}
_PYTHON |= {"sh", "bash", "shell", "console", "shell-session", "zsh"}  # a shell may show a session, or write a script
_SESSION = re.compile(r"^(?:>>> ?|In \[\d+\]: ?)", re.MULTILINE)
_STATEMENT = re.compile(r"(?:>>>|In \[\d+\]:) ?(?P<code>.*)$")
_GOES_ON = re.compile(r"(?:\.\.\.| {2,}\.{3,}:)(?: (?P<code>.*)|)$")
_RESULT = re.compile(r"Out\[\d+\]: ?")
_MAGIC = re.compile(r"^(?P<indent>\s*)(?P<magic>[%!].*)$", re.MULTILINE)
_HEREDOC = re.compile(
    r"<<-?\s*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)[^\n]*\n(?P<code>.*?)^\s*(?P=end)\s*$", re.DOTALL | re.MULTILINE
)
_COMMAND = re.compile(r"\bpython[\d.]*t?\s+(?:-\w+\s+)*-c\s+(?P<quote>['\"])(?P<code>.*?)(?P=quote)", re.DOTALL)
_QUOTED = r"'[^'\n]*'|\"[^\"\n]*\""
_CALL = re.compile(
    rf"(?P<variables>(?:\b[A-Za-z_]\w*=(?:{_QUOTED}|[^\s`'\"]*)\s+)*)"
    r"(?P<launcher>(?:torchrun|accelerate launch|deepspeed|mpirun|python[\d.]*t? -m torch\.distributed\.\w+)\s"
    r"[^\n`|&;<>#]{0,200}?)?(?:[^\s/]{0,99}/){0,9}(?(launcher)|(?:(?:i?python[\d.]*t?|pytest|uv run)\s+|\./))"
    r"(?P<flags>(?:-[uBOEs]+\s+|-[WX] ?\S+\s+|-m pytest\s+)*)"
    r"(?:(?P<script>[\w./-]+\.py)\b(?P<arguments>[^\n`|&;<>#]*)|-c?\s)"
)
_FLAGS = {"-O": ("PYTHONOPTIMIZE", "1"), "-X dev": ("PYTHONDEVMODE", "1"), "-W error": ("PYTHONWARNINGS", "error")}
_EXPORT = re.compile(
    r"(?m)(?:\b(?:export|setenv|set|ENV) +|%env +|(?<=\s)(?:-e|--env)[ =]|\$env:)(?P<name>[A-Z_][A-Z0-9_]*)"
    rf"(?: ?= ?| (?=\S+$))(?P<value>{_QUOTED}|[^\s;&|`]*)"
)
_TOLD = re.compile(
    r"(?<![\w$./-])(?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]+|[A-Z][A-Z0-9]{2,}(?==))[`'\"]?"
    rf"(?: ?= ?| (?:(?:is|was) )?(?:set )?to )`?(?P<value>{_QUOTED}|[^\s`,;)'\"]+)"
)
_ENVIRON = re.compile(r"(?:\bos\.)?environ(?:\.setdefault\(|\[)\s*['\"](\w+)['\"]\s*(?:\]\s*=|,)\s*")
_THREADS = re.compile(r"(?:\btorch\.)?\b[sg]et_num_threads\(\)?(?: *(?:is|==?|:|returns|gives|->) *)?`?(?=\d)")
# begin the names of variables that change what the tool itself runs, or where
_WITHHELD = re.compile("(LD|GLIBC|GCONV|UV|WHICHTORCH)_|CONDA|TMP|(HOME|PATH|VIRTUAL_ENV|PYTHON(PATH|HOME|STARTUP))$")
_FILE = re.compile(r"[\w-]+\.py\b")
_PROSE_WORDS = re.compile(r"[^\W\d_]{2,}(?: [^\W\d_]{2,}){2,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code, output, or anything else that is no prose."""

    text: str
    language: str = ""  # as its fence names it
    section: str = ""  # the heading above it
    before: str = ""  # the paragraph above it


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The parts of a report."""

    title: str
    blocks: tuple[Block, ...]
    paragraphs: tuple[tuple[str, str], ...]  # section and text, in order

    @property
    def story(self) -> str:
        """The title and the paragraphs, without those on versions and machines."""
        told = (text for section, text in self.paragraphs if not (_MACHINE.search(section) or _HEADER.search(text)))
        return "\n\n".join([self.title, *told])[:MOST_PROSE]

    @property
    def prose(self) -> str:
        """The title and all paragraphs."""
        return "\n\n".join([self.title, *(text for _, text in self.paragraphs)])[:MOST_PROSE]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of its prose, without those on what works."""
        parts = re.split(r"(?<=[.!?])\s+|\n\s*\n", self.prose)
        return tuple(each for each in parts if not CONTRAST.search(each) or _NEEDED.search(each))

    @property
    def told(self) -> str:
        """Its blocks, lines of a shell joined where they go on, and these sentences, without those on what works."""
        shown = (each.text.replace("\\\n", " ") for each in self.blocks if not CONTRAST.search(each.before))
        return "\n\n".join((*shown, *self.sentences))

    @property
    def whole(self) -> str:
        """All of its text."""
        return "\n\n".join([self.prose, *(each.text for each in self.blocks)])


def read_report(content: bytes) -> Report:
    """Return the parts of a report: Markdown, or the JSON that GitHub's API gives for an issue.

    Raises UsageError for what is too large, or no text.
    """
    if len(content) > MOST_BYTES:
        hint = "give the report alone, without its attachments"
        raise UsageError(f"the report has {len(content) / 1e6:.1f} MB; at most {MOST_BYTES / 1e6:.0f}", hint=hint)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "" if b"\0" in content else content.decode("latin-1")
    if b"\0" in content:
        raise UsageError("the report is no text", hint="give the body of an issue, as Markdown or as GitHub's JSON")
    title = ""
    try:
        issue = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        issue = None
    if isinstance(issue, dict) and isinstance(issue.get("body") or "", str) and ("body" in issue or "title" in issue):
        title, text = str(issue.get("title") or ""), str(issue.get("body") or "")
    return _parsed(_cleaned(title), _cleaned(text))


def _cleaned(text: str) -> str:
    """Return a text without escapes of a terminal, hidden characters, and comments and tags outside of its fences."""
    text = _HIDDEN.sub("", ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
    text = text.replace("\u00a0", " ")
    return _MARKUP.sub(lambda found: _MARKED[found.lastgroup].format(found[0]), text)


def _parsed(title: str, text: str) -> Report:
    blocks: list[Block] = []
    paragraphs: list[tuple[str, str]] = []
    section = before = ""
    tokens = MarkdownIt("commonmark", {"maxNesting": 20}).parse(text)
    for kind, content, language in _pieces(tokens):
        if kind == "heading":
            section, before = content, ""
            title = title or content
        elif kind == "paragraph":
            paragraphs.append((section, content))
            before = content
        elif content.strip() and len(blocks) < MOST_BLOCKS:
            blocks.append(Block(text=content, language=language, section=section, before=before))
            before = ""
    blocks_words = [" ".join(each.text.split()) for each in blocks]
    if (match := _UNFENCED.search(text)) and not any(" ".join(match[0].split()) in each for each in blocks_words):
        blocks.append(Block(text=text[match.start() :].strip("\n"), section=section))  # somebody forgot the fences
    return Report(title=title, blocks=tuple(blocks), paragraphs=tuple(paragraphs))


def _pieces(tokens: Sequence[Token]) -> Iterator[tuple[str, str, str]]:
    """Yield headings, paragraphs and blocks, each with its text, and the language of a block."""
    opened = ""
    for token in tokens:
        if token.type in {"heading_open", "paragraph_open"}:
            opened = token.type.removesuffix("_open")
        elif token.type == "inline":
            yield opened or "paragraph", token.content, ""
        elif token.type in {"fence", "code_block"}:
            yield "block", token.content, token.info.strip().partition(" ")[0].strip("{}.").lower()
        elif token.type == "html_block":
            yield "paragraph", html.unescape(re.sub(r"<[^>\n]*>", "", token.content)), ""


@dataclass(frozen=True, slots=True)
class Call:
    """How a report says that its script is started."""

    variables: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()  # what is left out here: variables, and what starts it


PLAIN = Call()


@dataclass(frozen=True)
class Snippet:
    """Python that stands in a report."""

    source: str
    block: Block
    printed: str = ""  # what the report shows below it, in a session
    file: str = ""  # the name that the report gives it

    @cached_property
    def tree(self) -> ast.Module:
        """Its statements."""
        return parse_module(self.source.encode())

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names that it gives to others."""
        return frozenset(bound(self.tree.body))

    @cached_property
    def lacks(self) -> frozenset[str]:
        """The names that it uses and does not bind."""
        return unbound_names(self.source)

    @cached_property
    def acts(self) -> bool:
        """Whether it does more than define and import."""
        return any(map(_acts, self.tree.body))


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return any(isinstance(each, ast.Call | ast.BinOp | ast.Subscript) for each in ast.walk(node))
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)


def snippets_in(report: Report) -> list[Snippet]:
    """Return the Python of a report's blocks, in order."""
    spans = [Block(text=each[0]) for each in _COMMAND.finditer(report.prose)]
    blocks = [each for each in report.blocks if each.language in _PYTHON or _SESSION.search(each.text)]
    return [snippet for block in (*blocks, *spans) for snippet in _snippets(block)]


def _snippets(block: Block) -> Iterator[Snippet]:
    text = textwrap.dedent(block.text.expandtabs(8) if "\t" in block.text else block.text)
    named = re.match(r"#\s*([\w-]+\.py)\s*$", text.partition("\n")[0])
    file = named[1] if named else (_FILE.findall(block.before.rpartition("\n")[2]) or [""])[-1]
    if _SESSION.search(text):
        source, printed = _of_session(text.splitlines())
        if _is_code(source):
            yield Snippet(source, block, printed)
        return
    if here := list(_HEREDOC.finditer(text)) or list(_COMMAND.finditer(text)):
        for each in here:
            if _is_code(code := textwrap.dedent(each["code"])):
                yield Snippet(code, block, file=(_FILE.findall(each[0].partition("\n")[0]) or [""])[-1])
        return
    if source := _readable(_MAGIC.sub(r"\g<indent>pass  # \g<magic>", text)):
        yield Snippet(source, block, file=file)


def _readable(text: str) -> str:
    """Return a text if it is Python, or the beginning of it that is; "" where there is none worth the name."""
    if _is_code(text):
        return _without_output(text)
    lines = text.splitlines(keepends=True)
    while lines:
        try:
            parse_module("".join(lines))
        except SyntaxError as error:
            lines = lines[: min(error.lineno or 1, len(lines)) - 1]
        except (ValueError, RecursionError, MemoryError):
            return ""
        else:
            break
    kept = "".join(lines)
    has_import = re.search(r"^\s*(?:import|from) \w", kept, re.MULTILINE)
    return _without_output(kept) if has_import and _is_code(kept) else ""


def _without_output(text: str) -> str:
    """Return a script without what it printed, where that stands below it and happens to be Python as well."""
    body = parse_module(text).body
    while len(body) > 1 and isinstance(last := body[-1], ast.Expr) and _is_value(last.value):
        del body[-1]
        text = "".join(text.splitlines(keepends=True)[: last.lineno - 1])
    return text


def _is_value(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in {"tensor", "array", "Parameter"}
    return isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Compare)


def _is_code(text: str) -> bool:
    """Return whether a text is Python that does something, rather than words or output that happen to parse."""
    if not text.strip() or len(text) > 200_000 or not compiles(text):
        return False
    nodes = list(ast.walk(tree := parse_module(text)))
    try:
        ast.unparse(tree)
    except RecursionError:  # nested so deeply that nobody can read it
        return False
    if any(isinstance(each, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef) for each in nodes):
        return True
    if all(isinstance(each, ast.AnnAssign) and each.value is None for each in tree.body):
        return False  # "RuntimeError: f(x)" is the last line of a traceback
    stores = any(isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) for each in nodes)
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    attributes = any(isinstance(each.func, ast.Attribute) for each in calls)
    return bool(calls) and (stores or attributes or any(getattr(each.func, "id", "") == "print" for each in calls))


def _of_session(lines: Sequence[str]) -> tuple[str, str]:
    """Return the statements of an interactive session as a script, and what it printed.

    The value of an expression that the session shows is printed, as the session did.
    """
    statements: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if match := _STATEMENT.match(line):
            statements.append(([match["code"] or ""], []))
        elif statements and not statements[-1][1] and (match := _GOES_ON.match(line)):
            statements[-1][0].append(match["code"] or "")
        elif statements:
            statements[-1][1].append(_RESULT.sub("", line))
    parts = ["\n".join(_shown(code, "\n".join(output).strip())) for code, output in statements]
    return "\n".join(parts) + "\n", "\n".join(line for _, output in statements for line in output).strip()


def _shown(code: Sequence[str], output: str) -> Iterator[str]:
    text = "\n".join(code).strip("\n")
    try:
        body = parse_module(textwrap.dedent(text)).body
        value = ast.unparse(body[0]) if body else ""
    except (SyntaxError, ValueError, RecursionError):
        body = []
    if not (output and len(body) == 1 and isinstance(body[0], ast.Expr)):
        yield _MAGIC.sub(r"\g<indent>pass  # \g<magic>", text)
    elif isinstance(body[0].value, ast.Call) and getattr(body[0].value.func, "id", "") in {"print", "exit", "quit"}:
        yield text
    else:
        yield f'__import__("sys").displayhook({value})'


def calls_in(report: Report) -> list[Call]:
    """Return the different ways in which a report starts its script, the one of which it says most first.

    The variables that its shell and its prose set are there in each, but for the last: without those of the prose.
    """
    exported = {each["name"]: each["value"] for each in _EXPORT.finditer(report.told)}
    in_prose = _told(report)
    told = exported | dict(reversed(in_prose))
    started = list(_CALL.finditer(report.told))
    starts = [(told, ""), *((told | {name: value}, "") for name, value in in_prose), (exported, "")]
    for match in started:
        given = dict(each.partition("=")[::2] for each in _words(match["variables"]))
        given |= dict(variable for flag, variable in _FLAGS.items() if flag in match["flags"])
        starts.append((told | given, match["arguments"] or ""))
    variables = dict.fromkeys((name, value.strip("'\"")) for given, _ in starts for name, value in given.items())
    omitted = [match["launcher"].strip() for match in started if match["launcher"]]
    omitted += [f"{name}={value}" for name, value in variables if _WITHHELD.match(name)]
    found: dict[Call, None] = {}
    for given, arguments in starts:
        kept = ((name, value.strip("'\"")) for name, value in given.items() if not _WITHHELD.match(name))
        words = [] if _PROSE_WORDS.search(arguments) else [each.rstrip(".,:)") for each in _words(arguments)]
        found[Call(tuple(kept), tuple(filter(None, words)), tuple(omitted))] = None
    calls = sorted(found, key=lambda each: -len(each.variables) - len(each.arguments))
    return [*calls[:3], *calls[3:][-1:]]


def _told(report: Report) -> list[tuple[str, str]]:
    """Return the variables that the prose of a report says to set, but for those that help."""
    constants = {name for each in snippets_in(report) for name in each.binds}
    texts = [_THREADS.sub("OMP_NUM_THREADS=", _ENVIRON.sub(r"\1=", text)) for text in report.sentences]
    told = [match for text in texts for match in _TOLD.finditer(text) if match["name"] not in constants]
    return [(match["name"], match["value"].rstrip(".:")) for match in told]


def _words(text: str) -> Iterable[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()

"""A bug report as text -> its blocks of code and output, and its prose, each with the section that it stands in.

A report is data: it is read, and nothing in it is obeyed.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from whichtorch.base.errors import UsageError
from whichtorch.base.escapes import ESCAPES

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

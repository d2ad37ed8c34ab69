"""What a report says should be printed, and what is printed instead: of a failure that no exit code tells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.answer.report import Report

MOST_OUTPUT = 2000  # characters of an output that a report quotes
_SPAN = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"")  # what is quoted stands as \x01NUMBER\x02 while a sentence is read
_VALUE = (
    r"(?:\x01\d+\x02|(?:tensor|array|torch\.Size|Size)\((?:[^()\n]|\([^()\n]{0,999}\)){0,999}\)|\[[^\[\]\n]{0,999}\]"
    r"|\((?:-?[\d.]+, ?)+-?[\d.]*\)|(?<![\w.\x01])-?\d[\d.,]*\d(?:e[+-]?\d+)?|(?<![\w.\x01])-?\d(?:e[+-]?\d+)?\b"
    r"|\b(?:True|False|None|-?nan|-?inf)\b)"
)
_CODE = re.compile(r"[A-Za-z_][\w.]*(?:\(.*\))?$|(?:In|Out) ?\[\d+\]:?$|-|.*\.py\b|.* = ")  # a name, a call, an option
_VALUES_ALONE = re.compile(r"(?:tensor|array|torch\.Size|Size)\(.*\)|True|False|None|-?nan|-?inf")
_PRINTS = re.compile(r"\b(?:print|output|say|show|end)\w*(?: with)? ?$")
_NEAR = r"(?:(?!\. )[^\n]){0,90}?"
_BESIDE = rf"(?:(?!\. |{_VALUE})[^\n]){{0,60}}?"
_SHOULD = (
    r"(?:\bexpect\w*|\bcorrect\w*|\bright (?:one|value|result|answer)|\bin eager(?: mode)?"
    r"|\b(?:should|must|ought to|has to)(?: \w+)? ?(?:be|print|return|give|output|say|show|yield)?"
    r"|\beager(?:ly)?(?: mode)?(?: it)? (?:is|gives|prints|returns|says))"
)
_IS = (
    r"(?:\bget(?:s|ting)?\b|\bgot\b|\bprint(?:s|ed)?\b|\breturn(?:s|ed)?\b|\bgives?\b|\bgave\b|\bsees?\b|\bactual\w*"
    r"|\boutputs?\b|\bshows?\b|\bsays\b|\bobserved?\b|\bis\b|\bwas\b|\byields?\b|\bcompiled\b)"
)
# seen and expected in one sentence, the surest first: what is quoted, then any value
_BOTH = tuple(
    re.compile(pattern.replace("VALUE", value), re.IGNORECASE)
    for value in (r"\x01\d+\x02", _VALUE)
    for pattern in (
        rf"(?P<seen>VALUE){_BESIDE}(?:\binstead of|\brather than|, not|\band not|\bbut not)[^\w\x01]*(?:\w+ )?"
        r"(?P<expected>VALUE)",
        rf"{_SHOULD}{_NEAR}(?P<expected>VALUE){_NEAR}{_IS}{_NEAR}(?P<seen>VALUE)",
        rf"{_IS}{_NEAR}(?P<seen>VALUE){_NEAR}{_SHOULD}{_NEAR}(?P<expected>VALUE)",
    )
)
_EXPECTED = re.compile(rf"{_SHOULD}{_NEAR}(?P<expected>{_VALUE})", re.IGNORECASE)
_SEEN = re.compile(rf"{_IS}{_NEAR}(?P<seen>{_VALUE})", re.IGNORECASE)
_SAYS_EXPECTED = re.compile(r"\bexpect\w*|\bshould\b|\bcorrect\b|\beager\b", re.IGNORECASE)
_SAYS_SEEN = re.compile(r"\bactual|\bgot\b|\bget\b|\bobserved\b|\binstead\b|\bcurrent", re.IGNORECASE)
_OPENED = re.compile(
    r"^\W*(?P<kind>expected|actual|observed|got)\b[^:\n]{0,30}: *(?P<text>\S[^\n]*)$", re.IGNORECASE | re.MULTILINE
)


def printed(report: Report) -> tuple[str, str]:
    """Return what should be printed by the report, and what it says is printed; "" for what it does not say."""
    expected = seen = ""
    for block in report.blocks:
        where = (block.before or block.section).rpartition(". ")[2]
        if not _is_output(block.text):
            continue
        if _SAYS_EXPECTED.search(where):
            expected = expected or block.text
        elif _SAYS_SEEN.search(where):
            seen = seen or block.text
    if expected and seen:
        return _plain(expected), _plain(seen)
    code = "\n".join(each.text for each in report.blocks)
    comments = [text.strip() for text in re.findall(r"#(.*)$", code, re.MULTILINE)]
    for text in (*_sentences(report.story), *comments):
        quoted, marked = _marked(text)
        for pattern in _BOTH:
            if found := pattern.search(marked):
                return _plain(found["expected"], quoted), _plain(found["seen"], quoted)
    named = {each["kind"].lower(): _plain(each["text"]) for each in _OPENED.finditer(report.story)}
    for text in _sentences(report.story):
        quoted, marked = _marked(text)
        if not expected and (found := _EXPECTED.search(marked)):
            expected = _plain(found["expected"], quoted)
        elif not seen and (found := _SEEN.search(marked)):
            seen = _plain(found["seen"], quoted)
    expected = named.get("expected") or expected
    seen = next((named[kind] for kind in ("actual", "observed", "got") if kind in named), seen if expected else "")
    return _plain(expected), _plain(seen)


def _sentences(prose: str) -> list[str]:
    """Return the paragraphs of a prose, each in one line, but lists and headings line by line."""
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*[-*#|])", prose)
    return [" ".join(each.split()) for each in paragraphs]


def _marked(text: str) -> tuple[list[str], str]:
    """Return what a text quotes as printed, and the text with a mark for each of it; quoted code is left out."""
    quoted: list[str] = []

    def mark(found: re.Match[str]) -> str:
        words = (found[1] or found[2]).strip()
        is_name = _CODE.match(words) and not _VALUES_ALONE.fullmatch(words)
        if is_name and not (words.isidentifier() and _PRINTS.search(text, max(0, found.start() - 30), found.start())):
            return "CODE"
        quoted.append(words)
        return f"\x01{len(quoted) - 1}\x02"

    return quoted, _SPAN.sub(mark, text)


def _plain(text: str, quoted: Sequence[str] = ()) -> str:
    """Return a value as it is printed, in one line."""
    text = " ".join(text.split())
    text = quoted[int(text[1:-1])].strip() if text[:1] == "\x01" else text.rstrip(".,")
    return text.strip("`\"'")


def _is_output(text: str) -> bool:
    is_code = re.search(r"^\s*(?:import|from|def|class|>>>|\$)\b", text, re.MULTILINE)
    return len(text) < MOST_OUTPUT and not is_code and "Traceback" not in text

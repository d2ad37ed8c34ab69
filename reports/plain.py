"""Text from anywhere, made fit to be shown: nothing in it moves a cursor, turns a line round or hides."""

from __future__ import annotations

import re

LINE = 2000  # characters of one line that are shown
_LINE_TAIL = 200  # of them, those from the line's end

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[PX^_][^\x1b\n]*\x1b\\"  # DCS, SOS, PM, APC
    r"|[ -/]*[0-Z\\-~])"
)
# Controls but tab and line feed; separators that scripts take for line ends; marks that turn, join or hide text;
# tags; lone surrogates, which no file can hold.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e007f\ud800-\udfff]"
)
_LONG = re.compile(rf"[^\n]{{{LINE + 1},}}")


def plain(text: str | bytes) -> str:
    r"""Return text without terminal escapes, with what cannot be seen written out, and with long lines cut.

    What is hidden becomes its escape (\x00, \u202e), not its picture, for which few machines have a font; bytes that
    are not UTF-8 become U+FFFD. A cut says how many characters it took.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    if text.isascii() and text.isprintable() and len(text) <= LINE:
        return text
    text = _ANSI.sub("", text.replace("\r\n", "\n"))
    return _LONG.sub(_cut, _HIDDEN.sub(_visible, text))


def one_line(text: str, limit: int) -> str:
    """Return text as one line of at most so many characters."""
    shown = plain(" ".join(text.split()) if "\n" in text or "\t" in text else text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _visible(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _cut(match: re.Match[str]) -> str:
    line = match[0]
    cut = len(line) - LINE
    return f"{line[: LINE - _LINE_TAIL]} … {cut} characters cut … {line[-_LINE_TAIL:]}"

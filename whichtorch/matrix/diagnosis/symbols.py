"""Make the names of native functions readable, and equal over collectors and releases.

py-spy demangles without return types, pystack and gdb with them; templates fill whole screens. The result is
what a developer calls the function: `at::_ops::mm::redispatch`, `c10::impl::BoxedKernelWrapper::call`.
"""

from __future__ import annotations

import re

UNNAMED = "???"

_ADDRESS = re.compile(r"^0x[0-9a-f]+$")
_SUFFIX = re.compile(
    r"(@@?[A-Za-z0-9_.]+|@plt| \[clone [^\]]*\]|\[abi:\w+\]|\.(constprop|isra|part|cold|lto_priv)(\.\d+)?)+$"
)
_QUALIFIERS = {"const", "volatile", "&", "&&", "noexcept"}
_CLOSING = {"(": ")", "<": ">", "{": "}"}
_OPERATOR = re.compile(r"\boperator(?:<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|<|>)?")
_SPACED_OPERATOR = re.compile(r"operator (?:new|delete|co_await)(?:\[\])?$|operator [\w:]+\*?$")
_CALL = "operator\0"  # stands for operator() while parentheses are cut


def display(symbol: str) -> str:
    """Return a demangled name without templates, parameters, return type and anonymous namespaces.

    Addresses and unknown functions become `???`; a lambda keeps its number: `run::{lambda#1}::operator()`.
    """
    symbol = symbol.strip()
    if symbol in {"", UNNAMED, "??"} or _ADDRESS.match(symbol):
        return UNNAMED
    symbol = _SUFFIX.sub("", symbol.replace("(anonymous namespace)::", "").replace("{anonymous}::", ""))
    name = _last_word(_cut(symbol.replace("operator()", _CALL))).replace(_CALL, "operator()")
    return _SUFFIX.sub("", name) or symbol


def _cut(text: str) -> str:
    """Drop balanced (...) and <...>; keep {...} with its own inside cut."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if match := _OPERATOR.match(text, position):
            parts.append(match[0])
            position = match.end()
        elif character in _CLOSING:
            end = _match(text, position)
            if character == "{":
                parts.append("{" + _cut(text[position + 1 : end]).strip().replace(" ", "_") + "}")
            position = end + 1
        else:
            parts.append(character)
            position += 1
    return "".join(parts)


def _match(text: str, start: int) -> int:
    """Return where the bracket at `start` closes, the end of the text where it does not."""
    expected = [_CLOSING[text[start]]]
    for position in range(start + 1, len(text)):
        character = text[position]
        if character == ">" and text[position - 1] == "-":
            continue  # the arrow of a return type
        if character == expected[-1]:
            expected.pop()
            if not expected:
                return position
        elif character in _CLOSING:
            expected.append(_CLOSING[character])
    return len(text)


def _last_word(text: str) -> str:
    """Return the function of `type function qualifiers`."""
    words = text.split()
    while len(words) > 1 and words[-1] in _QUALIFIERS:
        words.pop()
    joined = " ".join(words)
    if spaced := _SPACED_OPERATOR.search(joined):
        return joined[: spaced.start()].rpartition(" ")[2] + spaced[0]
    return words[-1].lstrip("*&") if words else ""

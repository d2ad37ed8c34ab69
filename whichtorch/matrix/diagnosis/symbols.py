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
_INNERMOST = re.compile(r"<[^<>()]*>|\([^<>()]*\)")
_UNCLOSED = re.compile(r"[<(]")
_BRACES = re.compile(r"\{.*?\}")
_ARROW = "\1"  # stands for the arrow of a return type while brackets are cut
_HIDDEN = str.maketrans("<>", "\2\3")  # of the name of an operator
_SHOWN = str.maketrans("\2\3", "<>")
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
    """Drop balanced (...) and <...>, also inside of {...}, and what follows a bracket that does not close."""
    text = _OPERATOR.sub(lambda match: match[0].translate(_HIDDEN), text).replace("->", _ARROW)
    before = ""
    while before != text:
        before, text = text, _INNERMOST.sub("", text)
    text = _BRACES.sub(lambda match: re.sub(r"\s+", "_", match[0]), _UNCLOSED.split(text)[0])
    return text.replace(_ARROW, "->").translate(_SHOWN)


def _last_word(text: str) -> str:
    """Return the function of `type function qualifiers`."""
    words = text.split()
    while len(words) > 1 and words[-1] in _QUALIFIERS:
        words.pop()
    joined = " ".join(words)
    if spaced := _SPACED_OPERATOR.search(joined):
        return joined[: spaced.start()].rpartition(" ")[2] + spaced[0]
    return words[-1].lstrip("*&") if words else ""

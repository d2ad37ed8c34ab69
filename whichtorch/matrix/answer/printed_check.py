"""Lines that make a script fail where it prints what a report calls wrong, or raises nothing where it should.

Exit codes do not tell such a failure. With these lines every search and every table can ask for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.answer.script_candidates import below_future

if TYPE_CHECKING:
    from whichtorch.matrix.answer.claims import Claim

_TEE = """\
import io as _io, re as _re, sys as _sys
_write = lambda self, text: (_sys.__stdout__.write(text), _io.StringIO.write(self, text))[1]
_sys.stdout = _printed = type("Tee", (_io.StringIO,), {"write": _write})()

"""
_COMPARE = """

# what the report says of the output, checked
_sys.stdout = _sys.__stdout__
_text = " ".join(_printed.getvalue().split())
_expected, _seen = {expected!r}, {seen!r}
_number = r"[-+]?(?:\\d+\\.?\\d*|\\.\\d+)(?:e[-+]?\\d+)?"
_values = lambda words: [float(each) for each in _re.findall(_number, words)]
_apart = max((abs(one - other) for one, other in zip(_values(_expected), _values(_seen))), default=1)

def _near(text, told):  # the last digit varies between machines; a whole number does not
    digits, _, power = told.partition("e")
    decimals = digits.partition(".")[2]
    unit = 10 ** (int(power or 0) - len(decimals)) if decimals or power else 0
    return abs(float(text) - float(told)) <= min(2 * unit, _apart / 4)

def _has(words):
    numbers = _re.findall(_number, words)
    plain = map(_re.escape, _re.split(_number, words))
    pattern = r"(?<![\\w.+-])(?=" + ("(" + _number + ")").join(plain) + r"(?![\\w.]))"
    found = _re.finditer(pattern, _text) if words else ()
    return any(all(map(_near, each.groups(), numbers)) for each in found)

assert not _has(_seen), f"printed {{_seen}}, expected {{_expected}}"
assert not _expected or _has(_expected), f"printed {{_text[-300:]}}, expected {{_expected}}"
"""
_CATCH = """\
import os as _os, sys as _sys
_exit = lambda kind, *rest: (_sys.__excepthook__(kind, *rest), _os._exit(kind.__name__ not in {names!r}))
_sys.excepthook = _exit

"""
_RAISE = """

raise AssertionError("nothing was raised; the report expects {names}")
"""


def checked(source: str, claim: Claim) -> tuple[str, tuple[str, ...]]:
    """Return a script that fails where it shows what a report claims, and what was added to it, in words."""
    if claim.is_silent:
        names = tuple(name for name, _ in claim.exceptions)
        body = below_future(source, _CATCH.format(names=names)) + _RAISE.format(names=" or ".join(names))
        return body, (f"added: it passes if it raises {' or '.join(names)}",)
    if claim.is_printed:
        body = below_future(source, _TEE) + _COMPARE.format(expected=claim.expected, seen=claim.seen)
        words = [f"prints {claim.seen!r}" if claim.seen else f"does not print {claim.expected!r}"]
        return body, (f"added: it fails if it {words[0]}",)
    return source, ()

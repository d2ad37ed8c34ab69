"""Lines that make a script fail where it prints what a report calls wrong, or raises nothing where it should.

Exit codes do not tell such a failure. With these lines every search and every table can ask for it. They check at the
exit of the script, because many end with a call of `sys.exit`.
"""

from __future__ import annotations

from whichtorch.answer.claims import NOTHING_RAISED, OTHER_OUTPUT, REPORTED_OUTPUT, Claim
from whichtorch.answer.script_candidates import below_future

QUOTED = 150  # characters of an output that a failure quotes
_AT_EXIT = """\
import atexit as _atexit, io as _io, os as _os, re as _re, sys as _sys

def _failed(name, message):
    try:
        raise type(name, (Exception,), {{"__module__": "__main__"}})(message)
    except Exception:
        _sys.__excepthook__(*_sys.exc_info())
    _sys.__stdout__.flush()
    _os._exit(1)

def _at_exit(pid=_os.getpid()):
    if pid == _os.getpid() and not hasattr(_sys, "last_type"):  # no fork of it, and no failure of its own
        _check()

{check}
if __name__ == "__main__":  # not in the processes that it starts
    _atexit.register(_at_exit)

"""
_OUTPUT = """\
_expected, _seen = {expected!r}, {seen!r}
_write = lambda self, text: (_sys.__stdout__.write(text), _io.StringIO.write(self, text))[1]
_sys.stdout = _printed = type("Tee", (_io.StringIO,), {{"write": _write}})()
_number = r"[-+]?(?:\\d+\\.?\\d*|\\.\\d+)(?:e[-+]?\\d+)?"
_values = lambda words: [float(each) for each in _re.findall(_number, words)]
_apart = max((abs(one - other) for one, other in zip(_values(_expected), _values(_seen))), default=1)

def _near(text, told):  # the last digit varies between machines; a whole number does not
    digits, _, power = told.partition("e")
    decimals = digits.partition(".")[2]
    unit = 10 ** (int(power or 0) - len(decimals)) if decimals or power else 0
    return abs(float(text) - float(told)) <= min(2 * unit, _apart / 4)

def _has(words, text):
    numbers = _re.findall(_number, words)
    plain = map(_re.escape, _re.split(_number, words))
    pattern = r"(?<![\\w.+-])(?=" + ("(" + _number + ")").join(plain) + r"(?![\\w.]))"
    return bool(words) and any(all(map(_near, each.groups(), numbers)) for each in _re.finditer(pattern, text))

def _check():
    _sys.stdout = _sys.__stdout__
    text = " ".join(_printed.getvalue().split())
    wanted = ", expected " + _expected[:{most}] if _expected else ""
    if _has(_seen, text):
        _failed("{reported}", "printed " + _seen[:{most}] + wanted)
    if _expected and not _has(_expected, text):
        _failed("{other}", "printed " + text[-{most}:] + wanted)
"""
_EXCEPTION = """\
_exit = lambda kind, *rest: (_sys.__excepthook__(kind, *rest), _os._exit(kind.__name__ not in {names!r}))
_sys.excepthook = _exit
_check = lambda: _failed("{nothing}", "nothing was raised; the report expects {words}")
"""


def checked(source: str, claim: Claim) -> tuple[str, tuple[str, ...]]:
    """Return a script that fails where it shows what a report claims, and what was added to it, in words."""
    if claim.is_silent:
        names = tuple(name for name, _ in claim.exceptions)
        check = _EXCEPTION.format(names=names, words=" or ".join(names), nothing=NOTHING_RAISED)
        words = f"passes if it raises {' or '.join(names)}"
    elif claim.is_printed:
        check = _OUTPUT.format(
            expected=claim.expected, seen=claim.seen, most=QUOTED, reported=REPORTED_OUTPUT, other=OTHER_OUTPUT
        )
        words = f"fails if it prints {claim.seen!r}" if claim.seen else f"fails if it does not print {claim.expected!r}"
    else:
        return source, ()
    return below_future(source, _AT_EXIT.format(check=check)), (f"added: it {words}",)

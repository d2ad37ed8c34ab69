"""The Python in a report -> scripts that may be its reproduction, the likeliest first.

A block that does something is the end of a script; the blocks that give it the names that it lacks come before it. A
script that stands as a part of a longer one is not tried by itself. Missing imports are added where a name has one
meaning among users of torch.

A script gets lines that make it fail where it prints what the report calls wrong, or raises nothing where it should:
exit codes do not tell such a failure, and with these lines every search and every table can ask for it. They check at
the exit of the script, because many end with a call of `sys.exit`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from whichtorch.answer.claims import NOTHING_RAISED, OTHER_OUTPUT, REPORTED_OUTPUT, Claim
from whichtorch.answer.needs import imported_modules
from whichtorch.answer.report import CONTRAST, PLAIN, Call, Report, Snippet, calls_in, snippets_in
from whichtorch.model import digest
from whichtorch.source.names import compiles, defaults, dotted, unbound_names
from whichtorch.source.syntax import Definition, is_docstring, parse_module, uncalled_tests

MOST = 4  # scripts that are tried
MOST_SNIPPETS = 60  # that are looked at
_IMPORTS = {
    "torch": "import torch",
    "nn": "import torch.nn as nn",
    "F": "import torch.nn.functional as F",
    "optim": "import torch.optim as optim",
    "dist": "import torch.distributed as dist",
    "fx": "import torch.fx as fx",
    "dynamo": "import torch._dynamo as dynamo",
    "np": "import numpy as np",
    "numpy": "import numpy",
    "pd": "import pandas as pd",
    "sp": "import scipy as sp",
    "nx": "import networkx as nx",
    "plt": "import matplotlib.pyplot as plt",
    "pytest": "import pytest",
    **{name: f"from torch import {name}" for name in ("Tensor", "tensor")},
    **{name: f"from torch.utils.data import {name}" for name in ("DataLoader", "Dataset", "TensorDataset")},
    "Parameter": "from torch.nn import Parameter",
    "make_fx": "from torch.fx.experimental.proxy_tensor import make_fx",
    "FakeTensorMode": "from torch._subclasses.fake_tensor import FakeTensorMode",
    "FakeTensor": "from torch._subclasses.fake_tensor import FakeTensor",
    "gradcheck": "from torch.autograd import gradcheck",
    "Variable": "from torch.autograd import Variable",
    **{name: f"from functools import {name}" for name in ("partial", "reduce", "wraps", "lru_cache")},
    **{name: f"from collections import {name}" for name in ("OrderedDict", "defaultdict", "namedtuple", "Counter")},
    **{name: f"from contextlib import {name}" for name in ("contextmanager", "nullcontext", "ExitStack")},
    **{name: f"from dataclasses import {name}" for name in ("dataclass", "field")},
    **{name: f"from copy import {name}" for name in ("deepcopy",)},
    **{name: f"from pathlib import {name}" for name in ("Path",)},
    **{name: f"from enum import {name}" for name in ("Enum", "IntEnum")},
    **{
        name: f"from typing import {name}"
        for name in ("Any", "Callable", "Dict", "List", "NamedTuple", "Optional", "Sequence", "Tuple", "Union")
    },
}
_ELSEWHERE = re.compile(  # a heading above logs, versions and wishes
    r"\W*(?:[a-z]+ )?(?:error|traceback|stack ?trace|log|version|environment|alternative|expected|actual|output)s?\b"
    r"(?: \w+){0,3}\W*",
    re.IGNORECASE,
)
_HEADER = re.compile(r"^#[ \t]*(///.*)$", re.MULTILINE)  # would tell whichtorch what to expect of a script, and more
_CUE = re.compile(r"repro|minimal|self-contained|fails|example|snippet|run (?:this|it)|script|bug", re.IGNORECASE)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A script that may be what a report is about, and how it is started."""

    source: str
    added: tuple[str, ...] = ()  # what was done to the text of the report, in words
    call: Call = PLAIN
    files: tuple[tuple[str, str], ...] = ()  # modules of the report that it imports, by their file names

    @property
    def tree(self) -> ast.Module:
        """Its statements."""
        return parse_module(self.source)


def candidates_in(report: Report) -> list[Candidate]:
    """Return the scripts to try, the likeliest first; none where the report has no Python that does something."""
    snippets = [each for each in snippets_in(report) if not _is_quoted(each)][:MOST_SNIPPETS]
    ends = [place for place, each in enumerate(snippets) if each.acts] or list(range(len(snippets)))[-1:]
    joined = dict.fromkeys(_joined(end, snippets) for end in ends)
    whole = [own for own in joined if not any(set(own) < set(other) for other in joined)]
    ordered = [[snippets[place] for place in own] for own in whole]
    modules = {each.file.removesuffix(".py"): each for each in snippets if each.file}
    scripts = [_completed(own, modules) for own in sorted(ordered, key=_rank)[:MOST]]
    if len(whole) > 1 and not any(map(_contrasts, snippets)):  # cells of a notebook
        scripts.append(_completed(snippets, {}))
    distinct = {each.source: each for each in scripts if compiles(each.source)}
    return [replace(each, call=call) for call in calls_in(report) for each in distinct.values()][:MOST]


def _is_quoted(snippet: Snippet) -> bool:
    """Return whether it is a line of a traceback or of a log rather than code that the report gives."""
    return bool(_ELSEWHERE.fullmatch(snippet.block.section)) and not re.search(r"\bimport\b", snippet.source)


def _contrasts(snippet: Snippet) -> bool:
    return bool(CONTRAST.search(snippet.block.before))


def _rank(snippets: Sequence[Snippet]) -> tuple[bool, bool, bool, bool]:
    """Return a sort key: what the report calls its reproduction first, what it contrasts with that last."""
    end = snippets[-1]
    return (
        _contrasts(end),
        bool(_ELSEWHERE.fullmatch(end.block.section)),
        not any("torch" in each.source for each in snippets),
        not _CUE.search(end.block.before + end.block.section),
    )


def _joined(end: int, snippets: Sequence[Snippet]) -> tuple[int, ...]:
    """Return the places of a snippet, last, and of those that give it what it lacks: the nearest above, else below."""
    needed, unread = {end}, [end]
    while unread:
        place = unread.pop()
        for name in sorted(snippets[place].lacks):
            if any(name in snippets[each].binds for each in needed if each != place):
                continue
            others = [*reversed(range(place)), *range(place + 1, len(snippets))]
            giver = next((each for each in others if name in snippets[each].binds), None)
            if giver is not None and giver not in needed:
                needed.add(giver)
                unread.append(giver)
    return (*sorted(needed - {end}), end)


def _completed(snippets: Sequence[Snippet], modules: Mapping[str, Snippet]) -> Candidate:
    """Return the script of some snippets, with the imports and the calls that it lacks.

    A module of the report that it imports becomes a file beside it, which the script's last line names.
    """
    files = _imported(snippets, modules)
    source = _without_header("\n\n".join(each.source.strip("\n") for each in snippets) + "\n")
    added = [f"{len(snippets)} blocks of the report are joined"] if len(snippets) > 1 else []
    if snippets[-1].printed:
        added.append("the statements of the session, without what it printed")
    if lines := sorted({line for name in unbound_names(source) if (line := _import_of(name, source))}):
        source = below_future(source, "\n".join(lines) + "\n\n")
        added += [f"added: {line}" for line in lines]
    if call := "\n".join(_calls_of(source)):
        source = f"{source}\n\n{call}\n"
        added.append(f"added: {'; '.join(call.splitlines())}")
    if files:
        source += "\n" + "".join(f"# beside it: {name}, {digest(text, 12)}\n" for name, text in files)
        added += [f"beside it: {name}, of the report" for name, _ in files]
    return Candidate(source=source, added=tuple(added), files=files)


def _without_header(source: str) -> str:
    return _HEADER.sub(r"#: \1", source)


def _imported(snippets: Sequence[Snippet], modules: Mapping[str, Snippet]) -> tuple[tuple[str, str], ...]:
    """Return the modules that snippets import, and those that these import, with their file names."""
    found: dict[str, str] = {}
    unread = list(snippets)
    while unread:
        tree = unread.pop().tree
        for name, module in modules.items():
            if module not in snippets and module.file not in found and name in imported_modules(tree):
                found[module.file] = _without_header(module.source)
                unread.append(module)
    return tuple(found.items())


def _import_of(name: str, source: str) -> str:
    """Return the import of a name that has one meaning here, "" for any other."""
    if name in _IMPORTS:
        return _IMPORTS[name]
    nodes = ast.walk(parse_module(source))
    is_module = any(isinstance(each, ast.Attribute) and dotted(each.value) == name for each in nodes)
    return f"import {name}" if is_module and (name in sys.stdlib_module_names or name in _PACKAGES) else ""


_PACKAGES = {"torchvision", "torchaudio", "transformers", "scipy", "networkx", "einops", "triton", "sympy", "functorch"}


def below_future(source: str, lines: str) -> str:
    """Return a script with lines before its first statement, but after what must be first."""
    last = 0
    for node in parse_module(source).body:
        if not (is_docstring(node) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")):
            break
        last = node.end_lineno or 0
    parts = source.splitlines(keepends=True)
    return "".join([*parts[:last], lines, *parts[last:]])


def _calls_of(source: str) -> Iterator[str]:
    """Yield what calls the functions of a script that does no more than define them: its tests, or the last one."""
    tree = parse_module(source)
    if tests := uncalled_tests(source.encode()):
        functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        if all(name in functions and _is_plain(functions[name]) for name in tests):
            yield from (f"{name}()" for name in tests)
        elif re.search(r"\bTestCase\b", source) and "pytest" not in source:
            yield "import unittest"
            yield "unittest.main()"
        else:
            yield "import pytest"
            yield 'raise SystemExit(pytest.main([__file__, "-x", "-q", "-p", "no:cacheprovider"]))'
    elif not any(map(_does_something, tree.body)):
        plain = [each.name for each in tree.body if isinstance(each, ast.FunctionDef) and _is_plain(each)]
        yield from (f"{name}()" for name in plain[-1:])


def _is_plain(node: ast.FunctionDef) -> bool:
    """Return whether a function can be called without arguments, and nothing is done to it."""
    required = len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - len(defaults(node.args))
    return not required and not node.decorator_list


def _does_something(node: ast.stmt) -> bool:
    definitions = Definition | ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign
    return not (is_docstring(node) or isinstance(node, definitions))


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

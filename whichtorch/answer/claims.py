"""What a report claims: which torch, Python and packages it was seen with, and what was seen and expected.

What runs decides whether a claim is true. A claim that is read wrongly can make the verdict wrong, but what each run
showed is told as it was. Of a failure that no exit code tells, what should be printed and what is printed is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from whichtorch.answer.report import snippets_in
from whichtorch.base.version_parsing import parse_version
from whichtorch.failures.tracebacks import RaisedException, read_chain
from whichtorch.model import Cell, Environment, Outcome

if TYPE_CHECKING:
    from whichtorch.answer.report import Report


# what a check calls the failures that it raises
REPORTED_OUTPUT, OTHER_OUTPUT, NOTHING_RAISED = "ReportedOutput", "OtherOutput", "NothingRaised"
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
    return [" ".join(each.split()) for each in re.split(r"\n\s*\n|\n(?=\s*[-*#|])", prose)]


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


ALIKE = 0.5  # share of the words of the shorter of two messages that must be in the other
_NUMBER = r"\d+\.\d+(?:\.\d+)?(?:[.\w+]*\w)?"
# where a report says which torch, the surest places first
_VERSIONS = (
    rf"PyTorch version: *v?({_NUMBER})",
    rf"\[(?:pip3?|conda)\] +(?:torch|pytorch)(?:==| +)({_NUMBER})",
    rf"__version__\)?[\s:=`'\"]*(?:is |Out\[\d+\]: )*['\"`]*({_NUMBER})",
    rf"^torch {{2,}}({_NUMBER})\s*$",
    rf"\btorch-({_NUMBER})-cp\d",
    rf"\btorch==({_NUMBER})",
    rf"\b(?:py)?torch\b(?:[\s:=*`]{{1,9}}(?:version|release|is|at)\b)?[\s:=*`v]{{0,9}}({_NUMBER})",
    r"\b(?:version|release|on|using|with|in)\b[\s:=*`v]{0,9}(2\.\d+(?:\.\d+)?(?:[.\w+]*\w)?)\b",
)
_PYTHON = re.compile(r"\bPython(?: version)?[ :=*`]*(3\.\d+)(?:\.\d+)?", re.IGNORECASE)
_PACKAGE = re.compile(  # in a list, a table or a sentence
    r"(?<![\w./-])(?P<name>[A-Za-z](?:[\w.-]*\w)?)[`*\"']{0,2}"
    r"(?:={1,3}|[ \t]*[:|@=│][ \t]*|[ \t]+\(?(?:version[: ]+)?(?:(?:at|is|in|on) )?|-(?=\d[\w.]*(?:\s|$))"
    r"|[,\n] *[\"']?[Vv]ersion[\"']? *[:=] *|\)?\n(?='\d))[`*\"']{0,2}v?"
    r"(?P<version>(?<==)\d[\w.]*|\d+(?:\.\w+)*\.\w*\d)(?:\+\w+)?(?![\w.]*\d|\s*[<>])"
)
_SYSTEM = re.compile(r"(?im)^(?:OS|Platform)\W+(?:Microsoft )?(Windows|mac ?OS)|\b(?:on|my) (Windows|macOS|Mac)\b")
# a release of these comes with, or is for, one release of torch
_TIED = re.compile(r"(?:torch|pytorch|torchvision|torchaudio|python|pip|.*triton|(?:nvidia|cuda)-.*)$")
_SOUGHT = ("setuptools", "optree", "opt-einsum")  # torch uses these where they are there
_EXCEPTION = re.compile(
    r"(?<![\w.])(?P<type>(?:[a-z_]\w*\.)+[A-Z]\w*(?=: )|(?:[A-Za-z_]\w*\.)*[A-Z]?\w*"
    r"(?:Error|Exception|Failed|Unsupported|Violation\w*|Interrupt)\b)(?:: *(?P<message>[^\n`]*))?"
)
_WARNING = re.compile(r"(?P<type>\w*Warning): (?P<message>[^\n]+)")
_SIGNALS = (
    ("SIGSEGV", r"segmentation fault|seg-?fault(?:s|ed|ing)?\b|SIGSEGV|signal 11\b|exit code 139"),
    ("SIGFPE", r"floating[- ]point exception|SIGFPE|signal 8\b|exit code 136"),
    ("SIGABRT", r"SIGABRT|Aborted \(core|\bAborted$|terminate called|double free|free\(\): invalid|exit code 134"),
    ("SIGILL", r"illegal instruction|SIGILL|exit code 132"),
    ("SIGBUS", r"\bbus error|SIGBUS"),
    ("", r"core dumped|crashes the (?:interpreter|process|kernel|python)|(?:kernel|interpreter) (?:dies|crashes|died)"),
)
_HANG = re.compile(
    r"\bhang(?:s|ing)?\b|\bhung\b|\bdead-?lock|\bnever (?:comes? back|ends?|returns?|finish\w*|terminat\w*|exits?|compl"
    r"et\w*|stops?)\b|(?:gets?|is|are|stays?) stuck\b|\bfreez(?:es|ing)\b|\binfinite(?:ly)? loop|\bruns? forever|does "
    r"?n[o']t (?:return|terminate|finish|end|come back)\b|\bblocks? forever",
    re.IGNORECASE,
)
_SHOULD_RAISE = re.compile(
    r"\b(?:should|must|expected to|supposed to|ought to|no longer)\s+(?:also |have |be )?"
    r"(?:rais|throw|error|reject|fail)",
    re.IGNORECASE,
)
_FLAKY = re.compile(
    r"\bsometimes\b|\bintermittent|\bflaky\b|\boccasional|\bat random\b|\brandomly (?:fail|hang)|\bnot (?:in )?every"
    r" (?:run|time)|\b\d+ (?:out )?of \d+ (?:runs|times|tries)|\bonce (?:in|every) ",
    re.IGNORECASE,
)
_ACCELERATOR = re.compile(r"Is (?:CUDA|XPU) available: True|^Nvidia driver version: \d|^MPS: True", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """How a report says that it fails: at most one of its outcomes, and the words."""

    outcome: Outcome | None = None  # None: the report does not say
    exceptions: tuple[tuple[str, str], ...] = ()  # names and messages, the surest first
    signal: str = ""
    expected: str = ""  # what should have been printed
    seen: str = ""  # what was printed instead
    is_silent: bool = False  # an exception should be raised, and is not
    is_warning: bool = False  # the exception stands for a warning, and has to be made of it

    @property
    def is_printed(self) -> bool:
        """True where the failure is a wrong text, which no exit code tells."""
        return self.outcome is None and not self.is_silent and bool(self.expected or self.seen)

    @property
    def words(self) -> str:
        """The claim as a part of a sentence."""
        if self.outcome is Outcome.FAIL:
            name, message = self.exceptions[0]
            return f"{name}: {message}" if message else name
        if self.outcome is Outcome.CRASH:
            return f"a crash by {self.signal}" if self.signal else "a crash"
        if self.outcome is Outcome.HANG:
            return "a hang"
        if self.is_printed:
            return " instead of ".join(filter(None, [self.seen or "another text", self.expected]))
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All that a report claims."""

    torch: str = ""  # as the report has it; "" if it does not say
    python: str = ""  # "3.11"
    packages: Mapping[str, str] = field(default_factory=dict)  # versions by normalized names
    claim: Claim = Claim()
    is_flaky: bool = False  # it does not fail in every run
    has_accelerator: bool = False  # it was seen on a machine with one
    system: str = ""  # what it was seen on, if that is not Linux


def claims_of(report: Report) -> Claims:
    """Return what a report claims."""
    whole = report.whole
    packages: dict[str, str] = {}
    for each in _PACKAGE.finditer(report.told.replace(".__version__", "")):
        if parse_version(each["version"]) and not _TIED.match(name := canonicalize_name(each["name"])):
            packages.setdefault(name, each["version"])
    system = None if re.search("(?i)linux|ubuntu|debian|fedora|centos|rocky", whole) else _SYSTEM.search(report.told)
    python = _PYTHON.search(whole)
    return Claims(
        torch=_torch(whole, report.prose),
        python=python[1] if python else "",
        packages=packages,
        claim=_claim(report),
        is_flaky=bool(_FLAKY.search(report.story)),
        has_accelerator=bool(_ACCELERATOR.search(whole)),
        system=(system[1] or system[2]) if system else "",
    )


def _torch(whole: str, prose: str) -> str:
    """Return the version of torch that is named in the surest place, and there the most often."""
    for place, pattern in enumerate(_VERSIONS):
        text = prose if place >= len(_VERSIONS) - 2 else whole
        named = (each[1] for each in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE))
        if found := Counter(filter(_is_version, named)):
            return found.most_common(1)[0][0]
    return ""


def _is_version(text: str) -> bool:
    version = parse_version(text)
    return version is not None and version.major < 10


def _claim(report: Report) -> Claim:
    code = {each.block for each in snippets_in(report)}
    sessions = [each.printed for each in snippets_in(report) if each.printed]
    output = "\n".join([*(each.text for each in report.blocks if each not in code), *sessions])
    exceptions = [*_raised(output), *([] if sessions else _raised(report.story))]
    is_stopped = any(name == "KeyboardInterrupt" for name, _ in exceptions)
    exceptions = [each for each in exceptions if each[0] not in {"KeyboardInterrupt", "SystemExit"}]
    for where in (output, report.story):
        for signal, pattern in _SIGNALS:
            if re.search(pattern, where, re.IGNORECASE | re.MULTILINE):
                return Claim(outcome=Outcome.CRASH, signal=signal)
        if exceptions and where is output and _raised(output) and not is_stopped:
            break
    if not _raised(output) and (warned := _WARNING.search(output)) and "warn" in report.prose.casefold():
        return Claim(outcome=Outcome.FAIL, exceptions=((warned["type"], warned["message"]),), is_warning=True)
    says_hang = bool(_HANG.search(report.story)) or is_stopped
    expected, seen = printed(report)
    if exceptions and not (is_stopped or (_HANG.search(report.title) and not _raised(output))):
        is_missing = bool(_SHOULD_RAISE.search(report.story)) and not _raised(output)
        outcome = None if is_missing else Outcome.FAIL
        return Claim(outcome=outcome, exceptions=tuple(exceptions[:4]), is_silent=is_missing)
    if is_stopped or (says_hang and not (expected and seen)):
        return Claim(outcome=Outcome.HANG)
    if sessions and expected and not (seen and seen in "\n".join(sessions)):
        seen = sessions[-1].rpartition("\n")[2]
    return Claim(expected=expected, seen=seen if seen != expected else "")


def _raised(text: str) -> list[tuple[str, str]]:
    """Return the exceptions that a text shows, with their messages: of the last traceback, else wherever named."""
    chain = read_chain(text) if "Traceback" in text else ()
    found = [(each.name, each.first_line) for each in chain]
    found += [
        (each["type"].rpartition(".")[2], (each["message"] or "").strip())
        for each in reversed(list(_EXCEPTION.finditer(text)))
    ]
    return list(dict.fromkeys(found))


def shows(claim: Claim, cell: Cell, chain: Sequence[RaisedException]) -> tuple[bool, str]:
    """Return whether a cell that went wrong shows what a report claims, and why.

    The words of a message vary between releases and machines, so that half of them decide; of two built-in
    exceptions only the same one counts.
    """
    is_checked = claim.is_printed or claim.is_silent
    if cell.outcome is not (claim.outcome or (Outcome.FAIL if is_checked else cell.outcome)):
        return False, f"the report says {claim.words}" if claim.words else "the report does not say so"
    if cell.outcome is Outcome.CRASH and claim.signal and claim.signal not in (cell.signature or ""):
        return False, f"the report says {claim.words}"
    if cell.outcome is not Outcome.FAIL:
        return True, ""
    own = [(each.name, each.first_line) for each in chain] or [((cell.signature or "").split(" ")[0], cell.message)]
    if claim.outcome is None:
        checks = {NOTHING_RAISED, REPORTED_OUTPUT} | (set() if claim.seen else {OTHER_OUTPUT})
        is_claimed = own[0][0] in checks
        is_other = own[0][0] == OTHER_OUTPUT
        why = f"the report says that it prints {claim.seen}" if is_other else "the report does not say so"
        return is_claimed, "" if is_claimed else why
    for name, message in claim.exceptions[:2]:
        for other, words in own:
            if name == other and _alike(message, words):
                return True, ""
            if name != other and message and _share(message, words) >= 0.8:
                return True, ""
    return False, f"the report says {claim.words}"


def _alike(message: str, other: str) -> bool:
    return not _telling(message) or _share(message, other) >= ALIKE


def _share(message: str, other: str) -> float:
    """Return which share of the telling words of the shorter message the other one has, too."""
    first, second = _telling(message), _telling(other)
    fewer = min(len(first), len(second))
    return len(first & second) / fewer if fewer else float(first == second)


def _telling(text: str) -> set[str]:
    return {word for word in re.findall(r"[^\W\d_][\w.]*", text.casefold()) if len(word) > 1}


def other_packages(claims: Claims, environment: Environment | None) -> dict[str, tuple[str, str]]:
    """Return the packages of which a report names another version than an environment has, with both; "" for none.

    What is not installed makes no difference, unless torch looks for it. A list that has what torch needs has all.
    """
    if environment is None or not environment.is_usable:
        return {}
    installed = {canonicalize_name(name): version for name, version in environment.packages.items()}
    there, told = dict.fromkeys(_SOUGHT, "") | installed, dict(claims.packages)
    if {"filelock", "sympy"} <= told.keys():
        told = {name: "" for name in installed if not _TIED.match(name)} | told
    both = {name: (version, there[name]) for name, version in told.items() if name in there}
    return {name: (version, own) for name, (version, own) in both.items() if not f"{own}.".startswith(f"{version}.")}


def listed(names: Iterable[str]) -> str:
    """Return names as a part of a sentence."""
    *others, last = list(names)
    return f"{', '.join(others)} and {last}" if others else last

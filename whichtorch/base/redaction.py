"""Keep secrets, user names and host names out of everything that is stored: outputs, stacks, records, reports.

A secret is known by what surrounds it, by its shape, or because a variable with a telling name holds it. Each
`SecretShape` looks for one of these. A replacement is the same every night, so that the same failure stays the same.
`ESCAPES` finds what steers a terminal, which readers of an output leave out, too.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor
    r"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[PX^_][^\x1b\n]*\x1b\\"  # DCS, SOS, PM, APC
    r"|[ -/]*[0-Z\\-~])"
)


TOKEN, USER, HOST = "<token>", "<user>", "<host>"
SHORTEST_SECRET = 8  # characters of a variable's value: shorter ones are words and numbers of ordinary output
SHORTEST_NAME = 3  # characters of a host's or a user's name: "vm" is in everybody's text
PASSES = 5  # over one text: the replacement of one shape may end a word that another one looks for
_PASSWORD_IN_URL = re.compile(r"://(?:[^\s/@:]*:)?([^\s/@:]+)@")
_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"(\s*+:)?')  # with a colon it names a field
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE|AUTH", re.IGNORECASE)
# Names of hosts and users that are words of torch's output or of records, or that build services and fresh machines
# have. They identify nobody, and replacing them would ruin a text.
_COMMON = """
    localhost localdomain host node server machine worker container docker linux ubuntu debian fedora windows macos
    root user users admin home shared public default guest nobody jenkins runner builder build conda circleci
    linuxbrew vscode jovyan dev desktop laptop workstation torch pytorch python numpy triton nvidia cuda rocm hip xpu
    cpu gpu meta aten main other test tests matrix scenario run script name path file lib src pypi existing git
    commit nightly release token credentials private key pass vacuous fail hang slow crash oom skip unbuildable
    broken error exit timeout stall memory processes output interrupt judge observe none null true false
"""
COMMON = frozenset(_COMMON.split())
# What a secret is called before "=" or ":". A first letter that may be large or small is left out, because a pattern
# that begins with a literal is found fast.
_WORDS = {
    "passw": ("assword", "asswd", "ASSWORD", "ASSWD"),
    "secret": ("ecret", "ECRET"),
    "_key": ("pi_key", "ccess_key", "rivate_key", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "ACCESS_KEY_ID"),
    "-key": ("pi-key", "ccess-key", "rivate-key"),
    "apikey": ("pikey", "piKey", "APIKEY"),
    "token": ("ccess_token", "uth_token", "rivate_token", "TOKEN"),
    "credentials": ("CREDENTIALS",),
}
# beginnings of tokens -> what follows
_TOKENS = {
    **{f"gh{kind}_": r"[A-Za-z0-9]{20,}+" for kind in "oprsu"},
    "github_pat_": r"\w{20,}+",
    "glpat-": r"[\w-]{16,}+",
    "hf_": r"[A-Za-z0-9]{24,}+",
    "pypi-AgE": r"[\w-]{8,}+",
    "npm_": r"[A-Za-z0-9]{30,}+",
    "xox": r"[abeoprs]-[\w-]{10,}+",
    "AKIA": r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    "ASIA": r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    "AIza": r"[\w-]{30,}+",
    "ya29.": r"[\w-]{20,}+",
    "sk-": r"(?<!-sk-)(?=[\w-]{0,40}\d)[\w-]{20,}+",
    "eyJ": r"[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]*+",  # a JSON Web Token
}


class SecretShape(NamedTuple):
    """A pattern and its replacement. It is tried on texts that hold one of its hints, which are cheap to look for."""

    hints: tuple[str, ...]  # case-folded
    pattern: str  # compiled when a hint was found: all of them take 9 ms
    replacement: str


def _shape(words: Iterable[str], pattern: str, replacement: str) -> SecretShape:
    return SecretShape(tuple(word.casefold() for word in words), pattern, replacement)


@cache
def _common_shapes() -> tuple[SecretShape, ...]:
    """Return the shapes that are the same on every machine.

    A pattern begins with a literal wherever it can, and looks back only after it, so that a search jumps from one
    to the next; possessive quantifiers (`++`) keep it linear on a line of 5 MB.
    """
    begin, end = (rf"-----{word} (?:[A-Z]++ ){{0,3}}PRIVATE KEY-----" for word in ("BEGIN", "END"))
    part = rf"(?:[^\s/\"'<>?#\\@]++|{TOKEN})*+"  # of a URL's user and password
    # not a number, and not a call in a line of source
    value = r"(?!\d++\b|(?i:none|null|true|false)\b)[^\s\"'<>&;,()\[\]{}\\]{4,}+(?!\()"
    given = r"(?:[\"']?\s?[:=]\s?[\"']|=|:\s)"
    query = r"(?:[\w-]{0,40}(?:token|secret|key|passw(?:or)?d|signature)|auth|sig|x-amz-[\w-]++)"
    netrc = r"(?:machine\s++\S++|default)"
    token = rf"\1{TOKEN}"  # after what surrounds it
    rows = (
        ("-----begin", rf"{begin}(?:[^-]|-(?!----)){{0,20000}}+{end}", "<private key>"),
        ("-----begin", rf"{begin}(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{{40,}}+)++", "<private key>"),  # cut off
        # the `git@` of an ssh address is everybody's
        ("://", rf"://(?!git@|<credentials>@){part}(?:@{part}(?=@))*+@", "://<credentials>@"),
        (
            "authorization",
            r"((?i:authorization)[\"']?+\s*+[:=]\s*+[\"']?+(?:(?i:basic|bearer|digest|token)\s++)?+)[^\s\"'<>,;]{6,}+",
            token,
        ),
        ("bearer", r"([Bb](?:earer|EARER)\s++)(?=[\w.~+/=-]{0,60}\d)[\w.~+/=-]{16,}+", token),
        ("token secret passw key= auth= sig= signature= x-amz-", rf"([?&](?i:{query})=)[^&\s\"'<>#\\)]++", token),
        *((hint, rf"({word}{given}){value}", token) for hint, words in _WORDS.items() for word in words),
        (
            "token passw secret -key",  # an option and its value
            rf"(-(?<![\w-]-)-?(?:[\w-]{{0,40}}-)?(?:token|passw(?:or)?d|secret|(?:api|access)-key) )(?!-){value}",
            token,
        ),
        *(
            (prefix, rf"{re.escape(prefix)}(?<![A-Za-z0-9_]{re.escape(prefix)}){rest}", TOKEN)
            for prefix, rest in _TOKENS.items()
        ),
        ("login", rf"({netrc}\s++login\s++)\S++(\s++password\s++)(?!{TOKEN})\S++", rf"\1{USER}\2{TOKEN}"),
        (
            "/home/ /users/",
            rf"(/(?:home|Users)/)(?!(?:{'|'.join(sorted(COMMON))})(?![\w.@+-]))[\w.@+-]++",
            rf"\1{USER}",
        ),
        (
            "users\\",  # a name may hold blanks where a folder follows
            r"(:\\++(?i:Users)\\++)(?!(?i:public|default)\b)(?:[^\\/:*?\"<>|\r\n]++(?=\\)|[^\\/:*?\"<>|\s]++)",
            rf"\1{USER}",
        ),
    )
    return tuple(_shape(hints.split(), pattern, replacement) for hints, pattern, replacement in rows)


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """Replaces what must not be stored, by the facts of one machine. Redacting twice is the same as once."""

    homes: tuple[str, ...] = ()  # the user's own folder, by all its paths
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @classmethod
    def of_this_machine(cls, environ: Mapping[str, str] = os.environ) -> Redactor:
        """Return the redactor for this machine and the user that `environ` belongs to."""
        try:
            account = pwd.getpwuid(os.getuid())
            login, folder = account.pw_name, account.pw_dir
        except KeyError:  # a container's user without a name
            login, folder = "", "/"
        home = environ.get("HOME") or folder
        users = [environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
        hosts = [os.uname().nodename, environ.get("HOSTNAME", ""), environ.get("COMPUTERNAME", "")]
        return cls(
            homes=_longest_first(path.rstrip("/") for path in (home, os.path.realpath(home))),
            users=_identifying([*users, login]),
            hosts=_identifying([*hosts, *(host.partition(".")[0] for host in hosts)]),
            secrets=_longest_first(_secrets_in(environ)),
        )

    def knowing(self, variables: Mapping[str, str]) -> Redactor:
        """Return a redactor that also knows the secrets in these variables."""
        more = set(_secrets_in(variables)) - set(self.secrets)
        return replace(self, secrets=_longest_first([*self.secrets, *more])) if more else self

    def text(self, text: str) -> str:
        """Return a text redacted."""
        return _redacted(text, self._present_shapes(text.casefold(), self._hints))

    def data(self, data: bytes) -> bytes:
        """Return bytes redacted, with every other byte as it was."""
        before = data.decode(errors="surrogateescape")
        after = self.text(before)
        return data if after == before else after.encode(errors="surrogateescape")

    def json_line(self, line: str) -> str:
        """Return JSON, of one line or many, with its strings redacted; its structure and field names stay."""
        folded = line.casefold()
        # these escapes can hide a hint; all others are as in `_json_hints`
        is_veiled = "\\u" in folded or "\\/" in folded
        present = self._shapes if is_veiled else self._present_shapes(folded, self._json_hints)
        if not present:
            return line
        return _JSON_STRING.sub(lambda match: match[0] if match[1] else _redacted_string(match[0], present), line)

    def file(self, path: Path) -> None:
        """Redact a file, completely or not at all; a missing one is left out, a clean one not written."""
        try:
            before = path.read_bytes()
        except FileNotFoundError:
            return
        if path.suffix == ".json":
            after = self.json_line(before.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        else:
            after = self.data(before)
        if after != before:
            partial = path.with_name(f"{path.name}.redacted")
            partial.write_bytes(after)
            partial.replace(path)

    def tree(self, folder: Path) -> None:
        """Redact all files below a folder, without following links."""
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                self.file(path)

    @cached_property
    def _shapes(self) -> tuple[SecretShape, ...]:
        """All shapes. Known values come first, because a general shape could replace a part of one only."""
        known = [_shape(self.secrets, "|".join(map(re.escape, self.secrets)), TOKEN)] if self.secrets else []
        # `/mnt/home/me` is not `/home/me`, and `/home/me.old` is not either
        for home, literal in ((home, re.escape(home)) for home in self.homes):
            known.append(_shape([home], rf"{literal}(?<![\w.-]{literal})(?![\w-]|\.\w)", "~"))
        names = []
        for host, literal in ((host, re.escape(host)) for host in self.hosts):
            names.append(_shape([host], rf"{literal}(?<!\w{literal})(?!\w)", HOST))
        # a folder of the user's, /tmp/torchinductor_NAME/, or NAME@host; elsewhere the name may be any word
        for user, name in ((user, re.escape(user)) for user in self.users):
            pattern = rf"{name}(?:(?<=[/\\]{name})(?=[/\\\"'])|(?<=_{name})(?=/)|(?<![\w.-]{name})(?=@))"
            names.append(_shape([user], pattern, USER))
        return (*known, *_common_shapes(), *names)

    @cached_property
    def _hints(self) -> dict[str, str]:
        return {hint: hint for shape in self._shapes for hint in shape.hints}

    @cached_property
    def _json_hints(self) -> dict[str, str]:
        """The hints by how JSON writes them."""
        return {json.dumps(hint, ensure_ascii=False)[1:-1]: hint for hint in self._hints}

    def _present_shapes(self, folded: str, hints: Mapping[str, str]) -> list[SecretShape]:
        """Return the shapes of which a case-folded text holds a hint."""
        present = {hint for written, hint in hints.items() if written in folded}
        return [shape for shape in self._shapes if not present.isdisjoint(shape.hints)] if present else []


def is_secret(name: str) -> bool:
    """Return whether a variable's name says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def _secrets_in(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables whose names look secret, and the passwords of URLs in any variable."""
    for name, value in variables.items():
        secrets = [password for quoted in _PASSWORD_IN_URL.findall(value) for password in (quoted, unquote(quoted))]
        if is_secret(name) and not (value.startswith("/") and Path(value).exists()):  # SSH_AUTH_SOCK, XAUTHORITY
            secrets.append(value.strip())
        yield from (secret for secret in secrets if len(secret) >= SHORTEST_SECRET)


def restored(path: Path) -> Path:
    """Return the path on this machine for a stored one: in the user's own home, or the only one that matches."""
    text = str(path)
    if text.startswith("~/"):
        return path.expanduser()
    if USER in text:
        matches = list(Path("/").glob(text.replace(USER, "*").lstrip("/")))
        return matches[0] if len(matches) == 1 else path
    return path


def _redacted(text: str, shapes: Sequence[SecretShape]) -> str:
    for _ in range(PASSES):
        before = text
        for shape in shapes:
            text = re.sub(shape.pattern, shape.replacement, text)
        if text == before:
            break
    return text


def _redacted_string(literal: str, shapes: Sequence[SecretShape]) -> str:
    """Return a JSON string redacted; one with nothing to redact stays byte for byte."""
    before = json.loads(literal) if "\\" in literal else literal[1:-1]
    after = _redacted(before, shapes)
    return literal if after == before else json.dumps(after, ensure_ascii="\\u" in literal)


def _longest_first(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words without empty ones, longest first: of two that begin alike, the longer one is meant."""
    return tuple(sorted({word for word in words if word}, key=lambda word: (-len(word), word)))


def _identifying(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that identify somebody."""
    return _longest_first(
        name for name in names if len(name) >= SHORTEST_NAME and name.casefold() not in COMMON and not name.isdigit()
    )

"""How secrets look when nothing else is known of them: what stands around them, and how they begin."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN, USER, HOST = "<token>", "<user>", "<host>"
# Names of hosts and users that are words of torch's output or of records, or that build services and fresh machines
# have: they tell nobody apart, and a text without them would be ruined.
_COMMON = """
    localhost localdomain host node server machine worker container docker linux ubuntu debian fedora windows macos
    root user users admin home shared public default guest nobody jenkins runner builder build conda circleci
    linuxbrew vscode jovyan dev desktop laptop workstation torch pytorch python numpy triton nvidia cuda rocm hip xpu
    cpu gpu meta aten main other test tests matrix scenario run script name path file lib src pypi existing git
    commit nightly release token credentials private key pass vacuous fail hang slow crash oom skip unbuildable
    broken error exit timeout stall memory processes output interrupt judge observe none null true false
"""
COMMON = frozenset(_COMMON.split())
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE|AUTH", re.IGNORECASE)
# what a secret is called in front of "=" or ":"; without a first letter that may be large or small, because what begins
# with a literal is found fast
_WORDS = {
    "passw": ("assword", "asswd", "ASSWORD", "ASSWD"),
    "secret": ("ecret", "ECRET"),
    "_key": ("pi_key", "ccess_key", "rivate_key", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "ACCESS_KEY_ID"),
    "-key": ("pi-key", "ccess-key", "rivate-key"),
    "apikey": ("pikey", "piKey", "APIKEY"),
    "token": ("ccess_token", "uth_token", "rivate_token", "TOKEN"),
    "credentials": ("CREDENTIALS",),
}


class SecretShape(NamedTuple):
    """What is looked for: a pattern, in those texts that hold one of its hints, which costs next to nothing."""

    hints: tuple[str, ...]  # case-folded
    pattern: re.Pattern[str]
    replacement: str


@cache
def shapes() -> tuple[SecretShape, ...]:
    """Return the rules that need no facts.

    A pattern begins with a literal wherever it can, and looks back only after it, so that a search jumps from one
    to the next; possessive quantifiers (`++`) keep it linear on a line of 5 MB.
    """
    key = r"-----BEGIN (?:[A-Z]++ ){0,3}PRIVATE KEY-----"
    part = rf"(?:[^\s/\"'<>?#\\@]++|{TOKEN})*+"  # of a URL's user and password
    # neither a number nor a call in a line of source
    value = r"(?!\d++\b|(?i:none|null|true|false)\b)[^\s\"'<>&;,()\[\]{}\\]{4,}+(?!\()"
    given = r"(?:[\"']?\s?[:=]\s?[\"']|=|:\s)"
    query = r"(?:[\w-]{0,40}(?:token|secret|key|passw(?:or)?d|signature)|auth|sig|x-amz-[\w-]++)"
    rows = (
        (
            "-----begin",
            rf"{key}(?:[^-]|-(?!----)){{0,20000}}+-----END (?:[A-Z]++ ){{0,3}}PRIVATE KEY-----",
            "<private key>",
        ),
        ("-----begin", rf"{key}(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{{40,}}+)++", "<private key>"),  # cut off
        # the `git@` of an ssh address is everybody's
        ("://", rf"://(?!git@|<credentials>@){part}(?:@{part}(?=@))*+@", "://<credentials>@"),
        (
            "authorization",
            r"((?i:authorization)[\"']?+\s*+[:=]\s*+[\"']?+(?:(?i:basic|bearer|digest|token)\s++)?+)[^\s\"'<>,;]{6,}+",
            rf"\1{TOKEN}",
        ),
        ("bearer", r"([Bb](?:earer|EARER)\s++)(?=[\w.~+/=-]{0,60}\d)[\w.~+/=-]{16,}+", rf"\1{TOKEN}"),
        (
            "token secret passw key= auth= sig= signature= x-amz-",
            rf"([?&](?i:{query})=)[^&\s\"'<>#\\)]++",
            rf"\1{TOKEN}",
        ),
        *((hint, rf"({word}{given}){value}", rf"\1{TOKEN}") for hint, words in _WORDS.items() for word in words),
        (
            "token passw secret -key",  # an option and its value
            rf"(-(?<![\w-]-)-?(?:[\w-]{{0,40}}-)?(?:token|passw(?:or)?d|secret|(?:api|access)-key) )(?!-){value}",
            rf"\1{TOKEN}",
        ),
        *_tokens(),
        (
            "login",  # of .netrc
            rf"((?:machine\s++\S++|default)\s++login\s++)\S++(\s++password\s++)(?!{TOKEN})\S++",
            rf"\1{USER}\2{TOKEN}",
        ),
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
    return tuple(SecretShape(tuple(hints.split()), re.compile(pattern), by) for hints, pattern, by in rows)


def _tokens() -> Iterator[tuple[str, str, str]]:
    """Yield a row for each kind of token that is known by how it begins."""
    for begin, rest in (
        *((f"gh{kind}_", r"[A-Za-z0-9]{20,}+") for kind in "oprsu"),
        ("github_pat_", r"\w{20,}+"),
        ("glpat-", r"[\w-]{16,}+"),
        ("hf_", r"[A-Za-z0-9]{24,}+"),
        ("pypi-AgE", r"[\w-]{8,}+"),
        ("npm_", r"[A-Za-z0-9]{30,}+"),
        ("xox", r"[abeoprs]-[\w-]{10,}+"),
        ("AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("AIza", r"[\w-]{30,}+"),
        ("ya29.", r"[\w-]{20,}+"),
        ("sk-", r"(?<!-sk-)(?=[\w-]{0,40}\d)[\w-]{20,}+"),
        ("eyJ", r"[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]*+"),  # a JSON Web Token
    ):
        literal = re.escape(begin)
        yield begin.casefold(), rf"{literal}(?<![A-Za-z0-9_]{literal}){rest}", TOKEN


def is_secret(name: str) -> bool:
    """Return whether a variable's name says that nobody else should know its value."""
    return _SECRET_NAME.search(name) is not None

"""Keep secrets, and who works where, out of what is stored: outputs, stacks, records, reports.

Nothing is known of a secret but its surroundings, its shape, or that a variable with a telling name holds it; so
each rule looks for one of these. What it puts in place is the same every night, so that one failure stays one.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from matrix.privacy.secret_shapes import COMMON, HOST, TOKEN, USER, SecretShape, is_secret, shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SHORTEST_SECRET = 8  # characters of a variable's value: shorter ones are words and numbers of ordinary output
SHORTEST_NAME = 3  # characters of a host's or a user's name: "vm" is in everybody's text
PASSES = 5  # over one text: what one rule puts in place may end a word that another looks for
_PASSWORD_IN_URL = re.compile(r"://(?:[^\s/@:]*:)?([^\s/@:]+)@")
_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"(\s*+:)?')  # with a colon it names a field


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """Replaces what must not be stored, by the facts of one machine. To redact twice is to redact once."""

    homes: tuple[str, ...] = ()  # the user's own folder, by all its paths
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @classmethod
    def of_this_machine(cls, environ: Mapping[str, str] = os.environ) -> Redactor:
        """Return one for the user and the machine that an environment is of."""
        login, folder = _account()
        home = environ.get("HOME") or folder
        users = [environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
        hosts = [os.uname().nodename, environ.get("HOSTNAME", ""), environ.get("COMPUTERNAME", "")]
        return cls(
            homes=_longest_first(path.rstrip("/") for path in (home, os.path.realpath(home))),
            users=_telling([*users, login]),
            hosts=_telling([*hosts, *(host.partition(".")[0] for host in hosts)]),
            secrets=_longest_first(secrets_in(environ)),
        )

    def knowing(self, variables: Mapping[str, str]) -> Redactor:
        """Return one that knows the secrets of these variables, too."""
        more = set(secrets_in(variables)) - set(self.secrets)
        return replace(self, secrets=_longest_first([*self.secrets, *more])) if more else self

    def text(self, text: str) -> str:
        """Return a text without what must not be stored."""
        return _redacted(text, self._active(text.casefold(), self._hints))

    def data(self, data: bytes) -> bytes:
        """Return bytes without it, and every other byte as it was."""
        before = data.decode(errors="surrogateescape")
        after = self.text(before)
        return data if after == before else after.encode(errors="surrogateescape")

    def json_line(self, line: str) -> str:
        """Return JSON, of one line or many, whose strings are without it: still JSON, with the same fields."""
        folded = line.casefold()
        # escapes that a hint cannot be looked for through; others escape as json.dumps does
        is_veiled = "\\u" in folded or "\\/" in folded
        active = self._rules if is_veiled else self._active(folded, self._escaped_hints)
        if not active:
            return line
        return _JSON_STRING.sub(lambda found: found[0] if found[1] else _redacted_string(found[0], active), line)

    def file(self, path: Path) -> None:
        """Rewrite a file that holds some of it, whole or not at all; one that is not there is left out."""
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
        """Rewrite all files below a folder that hold some of it."""
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                self.file(path)

    @cached_property
    def _rules(self) -> tuple[SecretShape, ...]:
        """All rules. Values first: a shape could take a part of one, and leave the rest."""
        return (*self._values(), *shapes(), *self._names())

    @cached_property
    def _hints(self) -> dict[str, list[int]]:
        """All hints, with the places of their rules."""
        found: dict[str, list[int]] = {}
        for place, rule in enumerate(self._rules):
            for hint in rule.hints:
                found.setdefault(hint, []).append(place)
        return found

    @cached_property
    def _escaped_hints(self) -> dict[str, list[int]]:
        """All hints as JSON writes them."""
        return {json.dumps(hint, ensure_ascii=False)[1:-1]: places for hint, places in self._hints.items()}

    def _active(self, folded: str, hints: Mapping[str, Sequence[int]]) -> list[SecretShape]:
        """Return the rules that a text has a hint for."""
        found = [hint for hint in hints if hint in folded]
        return [self._rules[place] for place in sorted({place for hint in found for place in hints[hint]})]

    def _values(self) -> Iterator[SecretShape]:
        if self.secrets:
            yield SecretShape(_folded(self.secrets), re.compile("|".join(map(re.escape, self.secrets))), TOKEN)
        # `/mnt/home/me` is not `/home/me`, and `/home/me.old` is not either
        for home in self.homes:
            literal = re.escape(home)
            yield SecretShape(_folded([home]), re.compile(rf"{literal}(?<![\w.-]{literal})(?![\w-]|\.\w)"), "~")

    def _names(self) -> Iterator[SecretShape]:
        for host in self.hosts:
            literal = re.escape(host)
            yield SecretShape(_folded([host]), re.compile(rf"{literal}(?<!\w{literal})(?!\w)"), HOST)
        for user in self.users:
            # a folder of theirs, /tmp/torchinductor_NAME/, or NAME@host; elsewhere the name may be any word
            name = re.escape(user)
            where = rf"{name}(?:(?<=[/\\]{name})(?=[/\\\"'])|(?<=_{name})(?=/)|(?<![\w.-]{name})(?=@))"
            yield SecretShape(_folded([user]), re.compile(where), USER)


def secrets_in(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables whose names look secret, and the passwords of URLs in any."""
    for name, value in variables.items():
        found = [unquoted for part in _PASSWORD_IN_URL.findall(value) for unquoted in (part, unquote(part))]
        if is_secret(name) and not (value.startswith("/") and Path(value).exists()):  # SSH_AUTH_SOCK, XAUTHORITY
            found.append(value.strip())
        yield from (one for one in found if len(one) >= SHORTEST_SECRET)


def restored(path: Path) -> Path:
    """Return the path that a stored one stands for on this machine: the user's own, or the only one there."""
    text = str(path)
    if text.startswith("~/"):
        return path.expanduser()
    if USER in text:
        there = list(Path("/").glob(text.replace(USER, "*").lstrip("/")))
        return there[0] if len(there) == 1 else path
    return path


def _redacted(text: str, rules: Sequence[SecretShape]) -> str:
    for _ in range(PASSES):
        before = text
        for rule in rules:
            text = rule.pattern.sub(rule.replacement, text)
        if text == before:
            break
    return text


def _redacted_string(literal: str, rules: Sequence[SecretShape]) -> str:
    """Return a JSON string redacted, as it was where there is nothing to redact."""
    before = json.loads(literal) if "\\" in literal else literal[1:-1]
    after = _redacted(before, rules)
    return literal if after == before else json.dumps(after, ensure_ascii="\\u" in literal)


def _folded(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word.casefold() for word in words)


def _longest_first(words: Iterable[str]) -> tuple[str, ...]:
    """Return words without empty ones, the longest first: of two that begin alike it is the one meant."""
    return tuple(sorted({word for word in words if word}, key=lambda word: (-len(word), word)))


def _telling(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that tell somebody apart."""
    return _longest_first(
        name for name in names if len(name) >= SHORTEST_NAME and name.casefold() not in COMMON and not name.isdigit()
    )


def _account() -> tuple[str, str]:
    """Return name and home folder of the user as the system knows them."""
    try:
        found = pwd.getpwuid(os.getuid())
    except KeyError:  # a container's user without a name
        return "", "/"
    return found.pw_name, found.pw_dir

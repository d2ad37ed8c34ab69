"""Evidence of a search that found no cure -> why the fix is not in Python alone, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHOWN = 5  # names of a kind; more are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEvidence:
    """What a search without a cure has seen."""

    reached: int  # changed units that a run of the script reaches in either release
    tried: int  # units that were tried
    breaking: tuple[str, ...] = ()  # units with which alone the script fails in another way: of these nothing is known
    closing: str = ""  # effect of the last test, with all that was reached and could be applied; "" for none
    lacking: tuple[str, ...] = ()  # symbols of C++ that reached units use and the bad binary does not have
    is_native: bool = False  # the failure is a signal, or a stack that ends in native code


def reasons(evidence: SearchEvidence) -> Iterator[str]:
    """Yield what speaks against a fix in Python alone."""
    if evidence.reached == 0:
        yield "no function of torch's Python that the script runs differs between the two releases"
    elif evidence.closing == "same":
        yield f"with all {evidence.tried} changed units that the script reaches, it fails as before"
    else:
        yield f"none of {evidence.tried} changed units that the script reaches cures it"
    yield from _untold(evidence)


def known_so_far(evidence: SearchEvidence) -> Iterator[str]:
    """Yield what a search knows that was cut short before it saw a cure."""
    yield f"no cure so far: {evidence.tried} of {evidence.reached} changed units that the script reaches had no effect"
    yield from _untold(evidence)


def _untold(evidence: SearchEvidence) -> Iterator[str]:
    if evidence.breaking:
        yield f"not known of {_some(evidence.breaking)}: with each of these alone, it fails in another way"
    if evidence.lacking:
        yield f"what changed uses symbols that the bad release's binary does not have: {_some(evidence.lacking)}"
    if evidence.is_native:
        yield "it fails in native code"


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")

"""Tell the failure of a test from the lack of what it uses: a release without torch.compile cannot have its bugs."""

from __future__ import annotations

import re

# exception -> what its message says where the script asks for what this release does not have
_MESSAGES = {
    "AttributeError": re.compile(
        r"module '[\w.]+' has no attribute|'(Tensor|Parameter|Generator)' object has no attribute"
        r"|'_OpNamespace' '\w+' object has no attribute|type object '\w+' has no attribute"
    ),
    "ImportError": re.compile(r"cannot import name"),
    "ModuleNotFoundError": re.compile(r"No module named"),
    "TypeError": re.compile(r"unexpected keyword argument|invalid keyword argument"),
    "NotImplementedError": re.compile(r"not (yet )?supported on (Python|Windows|macOS)", re.IGNORECASE),
}
# raised by torch where it does not support this Python or platform: "Python 3.11+ not yet supported for
# torch.compile" of 2.0 (torch/_dynamo/eval_frame.py)
_PLACES = ("check_if_dynamo_supported (",)
_PROXIES = ("__getattr__ (",)  # of torch/__init__.py and torch/_ops.py: they raise for the script


def is_absent(signature: str | None, message: str) -> bool:
    """Return whether a failure, by its signature and the first line of its message, is such a lack.

    Only what is raised in the script itself counts: deeper down a missing attribute is torch's own bug.
    """
    type_, _, place = (signature or "").partition(" in ")
    inner, _, outer = place.partition(" < ")
    if inner.startswith(_PLACES):
        return True
    words = _MESSAGES.get(type_)
    # the outer frame is the script's: in the same file, the inner one is a function of the script
    is_scripts_own = not outer or _file(inner) == _file(outer) or inner.startswith(_PROXIES)
    return words is not None and is_scripts_own and words.search(message) is not None


def _file(frame: str) -> str:
    return frame.rpartition(" (")[2]

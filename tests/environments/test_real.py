"""One real torch, from the configured index."""

from pathlib import Path

import pytest

from tests.environments.conftest import ask
from whichtorch.environments.cache import EnvironmentCache
from whichtorch.environments.configs import BUILTIN
from whichtorch.model import MetaKernel

ROOT = Path(__file__).parents[2]


@pytest.mark.torch
def test_a_real_torch() -> None:
    """Torch 2.11.0 passes its canary; its Meta mm is a Python kernel until the config removes it."""
    cache = EnvironmentCache(ROOT / ".whichtorch")  # which has it where other tests of real torch were run
    plain = cache.acquire(ask("2.11.0"))
    assert plain.is_usable, plain.reason
    assert plain.torch == "2.11.0"
    assert plain.fingerprint.git_version == "70d99e998b4955e0049d13a98d77ae1b14db1f45"
    meta_mm = plain.fingerprint.meta_mm
    assert isinstance(meta_mm, MetaKernel)
    assert meta_mm.python
    assert (meta_mm.registered or "").startswith("_meta_registrations.py:")
    changed = cache.acquire(ask("2.11.0", config=BUILTIN["cpp-meta"]))
    assert isinstance(changed.fingerprint.meta_mm, MetaKernel)
    assert not changed.fingerprint.meta_mm.python
    assert changed.id != plain.id

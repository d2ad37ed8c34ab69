"""What a state folder knows of the environments that workers have made for it."""

from pathlib import Path

from tests.environments.conftest import ask
from tests.fakes import FakeCache
from whichtorch.matrix.cluster.cluster_site import KnownEnvironments


def test_an_environment_is_known_with_what_its_packages_require(tmp_path: Path) -> None:
    """Another command on the same state folder needs no worker to say what it is."""
    environment = FakeCache(tmp_path).environment(ask("2.11.0"))
    KnownEnvironments(tmp_path).remember(ask("2.11.0"), environment, {"torch": ("filelock",)})
    known = KnownEnvironments(tmp_path)
    assert known.known(ask("2.11.0")) == environment
    assert known.requirements_of(ask("2.11.0")) == {"torch": ("filelock",)}

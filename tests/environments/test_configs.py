"""Configs are found by name, and a name that is none gets a remedy."""

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.environments.configs import BUILTIN, config_named, variables_digest
from whichtorch.inside.startup import FOLDER
from whichtorch.model import Config


def test_the_promised_configs_are_there() -> None:
    """Every config that the matrix file names in its comments exists and says what it is."""
    promised = {"default", "single-thread", "iomp", "cpp-meta", "dispatch-trace", "no-compile-threads"}
    assert promised == set(BUILTIN)
    assert all(config.summary and config.name == name for name, config in BUILTIN.items())


def test_variables_of_the_shell_count_if_they_steer_torch() -> None:
    """Not those of the locale, and none that torch does not read."""
    assert variables_digest({"HOME": "/home/me", "LANG": "C", "LC_ALL": "C", "TZ": "UTC", "CCACHE_DIR": "x"}) == ""
    seen = [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": ""}, {"NCCL_DEBUG": "0"}, {"CC": "gcc"}]
    assert len({variables_digest(each) for each in seen} | {""}) == 5
    assert variables_digest(seen[0] | {"TZ": "UTC"}) == variables_digest(seen[0])


def test_default_changes_nothing() -> None:
    """The config `default` is torch as it comes."""
    default = config_named("default", {})
    assert (default.env, default.hooks, default.beside) == ({}, (), ())


def test_hooks_of_builtin_configs_exist() -> None:
    """Every hook that a built-in config names is a file of the start-up folder."""
    named = {hook for config in BUILTIN.values() for hook in config.hooks}
    assert named == {"cpp_meta"}
    assert all((FOLDER / f"{hook}.py").is_file() for hook in named)


def test_only_what_is_installed_beside_is_referred_to() -> None:
    """A config whose variables name {beside} also says what is installed there, and the reverse."""
    for config in BUILTIN.values():
        assert any("{beside}" in value for value in config.env.values()) == bool(config.beside)


def test_a_custom_config_goes_before_a_builtin_one() -> None:
    """A matrix file may define a config anew."""
    mine = Config(name="single-thread", env={"OMP_NUM_THREADS": "1"})
    assert config_named("single-thread", {"single-thread": mine}) is mine


def test_an_unknown_name_gets_the_nearest_one() -> None:
    """A typing mistake is answered with what was probably meant, custom configs included."""
    mine = {"mkl-off": Config(name="mkl-off")}
    with pytest.raises(UsageError, match=r"no config is called 'mkl-of'\nhint: did you mean 'mkl-off'\?"):
        config_named("mkl-of", mine)
    with pytest.raises(UsageError, match=r"hint: known are default, .*, mkl-off;"):
        config_named("zzz", mine)

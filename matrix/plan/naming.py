"""From what a user calls an environment, or from its axes, to the request for it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.environments import configs, interpreters
from matrix.errors import UsageError, WhichtorchError
from matrix.plan.expansion import existing, expand
from matrix.privacy.redaction import restored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.model import Environment, Request
    from matrix.plan.matrix_file import MatrixFile


def request_for(file: MatrixFile, home: Path, axes: dict[str, str], interpreter: Path | None) -> Request | None:
    """Return the request for one environment, with a matrix file's builds and configs; None where it has no such."""
    try:
        if interpreter is not None:
            return existing(interpreter, configs.config_named(axes["config"], file.configs))
        is_default = axes["python"] == interpreters.default_python()
        python = () if is_default else (axes["python"],)
        narrowed = file.with_axes(
            torch=(axes["torch"],), python=python, build=(axes["build"],), config=(axes["config"],)
        )
        return next(iter(expand(narrowed, cache=home / "cache").requests), None)
    except WhichtorchError:
        return None


def environment_named(name: str, environments: Mapping[str, Environment]) -> Environment:
    """Return the known environment with this label or id, the latest of several.

    Raises UsageError with the known labels.
    """
    usable = [environment for environment in environments.values() if environment.is_usable]
    for environment in reversed(usable):
        if environment.label == name or (len(name) > 3 and environment.id.startswith(name)):
            return environment
    labels = list(dict.fromkeys(environment.label for environment in usable))
    near = difflib.get_close_matches(name, labels, n=3, cutoff=0.5)
    known = ", ".join(near or labels[-5:])
    remedy = f"known are {known}" if known else "run `whichtorch matrix` first, or name a Python by its path"
    raise UsageError(f"no known environment has the label or id {name!r}", hint=remedy)


def axes_of(environment: Environment) -> dict[str, str]:
    """Return what asks for an environment again; a wheel by its path, since other wheels may have its version."""
    options = dict(zip(environment.options, environment.options[1:], strict=False))
    spec = str(restored(Path(options.get("--torch", environment.torch))))
    return {
        "config": environment.config,
        "torch": spec if spec.endswith(".whl") else environment.torch,
        "python": ".".join(environment.python.split(".")[:2]),
        "build": environment.build,
    }

"""From what a user calls an environment, or from its axes, to the request for it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.environments import configs, interpreters
from matrix.errors import UsageError, WhichtorchError
from matrix.model import Build, Request
from matrix.plan import matrix_file
from matrix.privacy.redaction import restored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.model import Environment
    from matrix.plan.matrix_file import MatrixFile

EXISTING = "existing"  # the build of an environment that whichtorch did not make


def request_for(file: MatrixFile, home: Path, axes: dict[str, str], interpreter: Path | None) -> Request | None:
    """Return the request for one environment, of a matrix file's builds and configs; None where there is no such."""
    try:
        if interpreter is not None:
            chosen = configs.config_named(axes["config"], file.configs)
            return Request(torch="", python="", build=Build(name=EXISTING), config=chosen, interpreter=interpreter)
        own = {"torch": [axes["torch"]], "build": [axes["build"]], "config": [axes["config"]]}
        if axes["python"] != interpreters.default_python():
            own["python"] = [axes["python"]]
        table = file.model_dump(by_alias=True, exclude={"include", "axes", "exclude"}) | {"axes": own}
        expansion = matrix_file.expand(matrix_file.checked(table, "the environment"), cache=home / "cache")
    except WhichtorchError:
        return None
    return expansion.requests[0] if expansion.requests else None


def environment_named(name: str, environments: Mapping[str, Environment]) -> Environment:
    """Return the known environment with this label or id, the latest of several.

    Raises UsageError with the known labels.
    """
    for environment in reversed(list(environments.values())):
        if environment.is_usable and (environment.label == name or (len(name) > 3 and environment.id.startswith(name))):
            return environment
    labels = list(dict.fromkeys(one.label for one in environments.values() if one.is_usable))
    near = difflib.get_close_matches(name, labels, n=3, cutoff=0.5)
    known = ", ".join(near or labels[-5:])
    remedy = f"known are {known}" if known else "run `whichtorch matrix` first, or name a Python by its path"
    raise UsageError(f"no known environment has the label or id {name!r}", hint=remedy)


def axes_of(environment: Environment) -> dict[str, str]:
    """Return what asks for an environment again; a wheel by its path, since its version may be another's, too."""
    options = dict(zip(environment.options, environment.options[1:], strict=False))
    spec = str(restored(Path(options.get("--torch", environment.torch))))
    return {
        "config": environment.config,
        "torch": spec if spec.endswith(".whl") else environment.torch,
        "python": ".".join(environment.python.split(".")[:2]),
        "build": environment.build,
    }

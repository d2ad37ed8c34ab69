"""An environment as it is, with what the probe found out inside."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, SerializerFunctionWrapHandler, model_serializer

from whichtorch.matrix.model.base import Model, StoredPath
from whichtorch.matrix.model.outcome import Outcome
from whichtorch.matrix.model.request import ANY_HARDWARE, NO_PATCH


class ProbedFacts(Model):
    """Base of what the probe writes: a newer probe may add fields, older records hold fewer; only set ones are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    @model_serializer(mode="wrap")
    def _set_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name in self.model_fields_set}


class TorchConfig(ProbedFacts):
    """What `torch.__config__.show()` says."""

    components: tuple[str, ...] = ()
    settings: dict[str, str] = {}


class Processor(ProbedFacts):
    """The CPUs of a machine."""

    model: str = ""
    count: int | None = None
    usable: int | None = None  # by this process


class MetaKernel(ProbedFacts):
    """Where the Meta kernel of aten::mm is registered; one in Python takes the GIL."""

    registered: str | None = None
    kind: str | None = None
    python: bool | None = None


class Fingerprint(ProbedFacts):
    """What tells one torch and its machine from another. A string "unknown (ValueError)" replaces a failed answer."""

    torch: str | None = None
    git_version: str | None = None  # the commit that torch was built from
    debug: bool | str | None = None
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None
    python: str | None = None
    machine: str | None = None
    system: str | None = None
    glibc: str | None = None
    numpy: str | None = None
    config: TorchConfig | str | None = None
    parallel: dict[str, str] | str | None = None  # of torch.__config__.parallel_info()
    openmp_loaded: tuple[str, ...] | str | None = None  # file names of shared libraries
    blas_loaded: tuple[str, ...] | str | None = None
    cuda_available: bool | str | None = None
    gpus: tuple[str, ...] | str | None = None
    cpu: Processor | str | None = None
    meta_mm: MetaKernel | str | None = None
    dispatch: dict[str, str] | str | None = None  # dispatch tables as torch writes them, by operator


class Environment(Model):
    """What is really there, with a config applied; or why it is not."""

    id: str  # hash of what was installed, build, Python and config
    label: str
    torch: str  # the version found inside; the one asked for where there is none
    python: str  # full version, "3.11.7"
    build: str
    config: str
    patch: str = NO_PATCH  # name and hash: "mine@3fa2c1"
    hardware: str = ""  # the kind of machine that was asked for, "" for any
    interpreter: StoredPath | None = None
    packages: dict[str, str] = {}
    fingerprint: Fingerprint = Fingerprint()
    outcome: Outcome | None = None  # UNBUILDABLE or BROKEN, else None
    reason: str | None = None  # of `outcome`, one line
    log: StoredPath | None = None  # of `outcome`, where the whole story is
    notes: tuple[str, ...] = ()  # what was pinned and why
    options: tuple[str, ...] = ()  # of the command line, that ask for just this environment again
    variables: dict[str, str] = {}  # that its cells run with: the config's, and the user's that are allowed here

    @property
    def axes(self) -> dict[str, str]:
        """What it is along each axis, as a request names it."""
        python = ".".join(self.python.split(".")[:2])
        installed = {"torch": self.torch, "python": python, "build": self.build}
        return {"config": self.config, "patch": self.patch, **installed, "hardware": self.hardware or ANY_HARDWARE}

    @property
    def is_usable(self) -> bool:
        """True where cells can run."""
        return self.outcome is None

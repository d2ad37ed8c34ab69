"""An environment as it is asked for, and as it is, with what the probe found inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, ConfigDict, Field

from whichtorch.base.version_parsing import minor_python
from whichtorch.model.base import Model, OpenModel, StoredPath, digest
from whichtorch.model.outcome import Outcome

UNRESOLVABLE = "the requirements cannot be resolved"  # begins the reason where a user asked for some
NO_PATCH = "none"  # a release as it is, where a patch could be named

ANY_HARDWARE = "any"  # whatever machine there is, where a kind could be named


TABLE_NAME = "[NAME]"  # stands for the name of a table among its keys: no TOML key looks like this by chance


class MatrixTable(Model):
    """Base of what a matrix file can define, each in a table such as [build.NAME]; its keys have hyphens there."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), validate_by_name=True)

    name: str = Field(validation_alias=TABLE_NAME)


def _checked_specifier(value: str) -> str:
    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        raise ValueError(f"{value!r} is not a specifier such as '<2.12'") from None
    return value


Specifier = Annotated[str, AfterValidator(_checked_specifier)]


class Build(MatrixTable):
    """Where a wheel comes from. `backend` is uv's --torch-backend."""

    index_url: str | None = None
    find_links: str | None = None  # a folder or page of wheels
    backend: str | None = None
    requirements: tuple[str, ...] = ()  # installed with torch, e.g. a pinned numpy
    nightly: bool = False  # versions are .dev releases
    candidates: bool = False  # versions are release candidates, whose wheels change under their names

    @property
    def identity(self) -> dict[str, Any]:
        """What makes a build the same."""
        return self.model_dump(mode="json", exclude=None if self.candidates else {"candidates"})


class Config(MatrixTable):
    """A named set of environment variables and start-up hooks."""

    env: dict[str, str] = {}  # values may name {beside}, the folder that `beside` was installed into
    hooks: tuple[str, ...] = ()  # modules of whichtorch/inside/startup, run inside the environment
    beside: tuple[str, ...] = ()  # requirements installed next to, not into, the environment
    summary: str = ""


class Patch(Model):
    """A change of torch's Python files, tried in a copy of an installation."""

    name: str
    text: str  # a unified diff
    option: str = ""  # what names it on a command line: its file, or its name in a matrix file

    @property
    def key(self) -> str:
        """What makes a patch the same, whatever it is called."""
        return digest(self.text)

    @property
    def title(self) -> str:
        """What tells it from other patches, and from what it was before it was edited: "mine@3fa2c1"."""
        return f"{self.name}@{self.key[:6]}"


class Hardware(MatrixTable):
    """A kind of machine, by what it says of itself. All values that are named must match."""

    gpu: str = ""  # the model as its driver names it, "*H100*"; a glob, as are arch, cpu and host
    driver: Specifier = ""  # ">=570"
    arch: str = ""  # "x86_64"
    cpu: str = ""
    host: str = ""


class LocalProject(Model):
    """A project of the user's that is installed without its dependencies, from a copy of its files."""

    name: str
    digest: str  # of the files; a copy of them is kept in the state folder
    subfolder: str  # of the copy, where its pyproject.toml is
    repository: str = Field(default="", exclude=True)  # the git repository that it is in, if it is in one


class Request(Model):
    """One environment as asked for: a torch release from a build, or an existing interpreter."""

    torch: str  # "2.11.0", "2.16.0.dev20261120+cpu", a wheel's path; "" for an existing interpreter
    python: str  # "3.11", "3.13t" without the GIL; "" for an existing interpreter
    build: Build
    config: Config
    patch: Patch | None = None  # None: as it is installed
    commit: str = ""  # whose Python is laid over what is installed; "": that of the wheel
    imported: tuple[str, ...] = ()  # modules that its canary imports: a commit that cannot is broken
    hardware: Hardware | None = None  # None: any machine
    interpreter: Path | None = None  # an existing environment, used as it is
    folder: str = ""  # what tells it from other such environments; "": the name of its folder
    requirements: tuple[str, ...] = ()  # for every environment of a matrix file
    added: tuple[str, ...] = ()  # those of `requirements` that options or the script ask for
    constraints: tuple[str, ...] = ()  # which versions packages have if they are needed
    overrides: tuple[str, ...] = ()  # which versions packages have, whatever others ask of them: one of each package
    resolution: str = ""  # uv's word for which of the versions that fit packages have; "": the highest
    projects: tuple[LocalProject, ...] = ()
    added_options: tuple[str, ...] = ()  # of the command line, for packages that the script does not name and variables
    contents: str = ""  # digest of the folders and wheels that requirements name
    wheel: str = ""  # of release candidates: which of the wheels that torch's had, or will have, this name
    lock: tuple[str, ...] = ()  # exact pins, "name==version" or "name @ url": nothing else is installed
    problem: str | None = None  # why it cannot be made, where planning already knows
    show_python: bool = False  # Python is an axis of the matrix, so it is part of the label
    matrix: Path | None = None  # the file that defines build, config and requirements; None: the default one

    @property
    def label(self) -> str:
        """What people call it: stable from night to night, unique within a matrix."""
        if self.interpreter is not None:
            parts = ["python", self.folder or folder_of(self.interpreter).name or self.interpreter.name]
        else:
            wheel = self.torch.endswith(".whl")
            version = Path(self.torch).name.split("-")[1] if wheel else self.torch
            parts = ["torch", version, "wheel" if wheel else self.build.name]
            parts += [f"py{self.python}"] if self.show_python else []
            parts += [f"lock{digest(self.lock, 6)}"] if self.lock else []
        if self.config.name != "default":
            parts.append(self.config.name)
        label = "-".join(parts) + (f"+{self.patch.name}" if self.patch is not None else "")
        label += "".join(f"+{words}" for words in _added_parts(self.added, self.overrides))
        label += "".join(f"+{words}" for words in (self.resolution, self.commit[:10]) if words)
        return label if self.hardware is None else f"{label}@{self.hardware.name}"

    @property
    def options(self) -> tuple[str, ...]:
        """The command-line options that ask for just this environment again."""
        if self.interpreter is not None:
            options: tuple[str, ...] = ("--interpreter", str(self.interpreter))
        else:
            options = ("--torch", self.torch, "--build", self.build.name)
            options += ("--python", self.python) if self.show_python else ()
        options = options if self.config.name == "default" else (*options, "--config", self.config.name)
        options = options if self.patch is None else (*options, "--patch", self.patch.option)
        options = options if self.hardware is None else (*options, "--hardware", self.hardware.name)
        options += (*self.added_options, *(word for text in self.overrides for word in ("--override", text)))
        return options if self.matrix is None else ("--matrix", str(self.matrix), *options)

    @property
    def axes(self) -> dict[str, str]:
        """What is asked for along each axis, the easiest to change first."""
        patch = NO_PATCH if self.patch is None else self.patch.title
        installed = {"torch": self.torch, "python": self.python, "build": self.build.name}
        return {"config": self.config.name, "patch": patch, **installed, "hardware": self.hardware_name or ANY_HARDWARE}

    @property
    def hardware_name(self) -> str:
        """The kind of machine that is asked for, "" for any."""
        return "" if self.hardware is None else self.hardware.name

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two requests the same: the installation, the config with its variables, and the hardware."""
        config = [self.config.name, *([digest(self.config.env)] if self.config.env else [])]
        return self.install_key, "+".join(config), self.hardware_name

    @property
    def unpatched(self) -> Request:
        """The request for what the patch is applied to."""
        return self.model_copy(update={"patch": None})

    @property
    def unlaid(self) -> Request:
        """The request for the wheel that a commit's Python is laid over."""
        return self.model_copy(update={"commit": "", "imported": ()})

    @property
    def install_key(self) -> str:
        """Names the installation: all that `label` says and the requirements, but not the config."""
        request = self.model_dump(mode="json", exclude={*_NOT_INSTALLED, "imported"})
        request["build"] = self.build.identity
        for name in ("lock", "contents", "wheel", "constraints", "overrides", "resolution", "projects", "commit"):
            if not request[name]:
                del request[name]
        if self.patch is not None:
            request["patch"] = self.patch.key
        return digest(request)


def added_words(requirements: Sequence[str]) -> str:
    """Return up to two requirements as people would say them, and a number and a hash for more."""
    if len(requirements) > 2:
        return f"{len(requirements)}packages-{digest(requirements, 6)}"
    words = []
    for text, requirement in ((text, Requirement(text)) for text in requirements):
        is_plain = requirement.url is None and requirement.marker is None
        words.append(text.replace(" ", "") if is_plain else f"{requirement.name}-{digest(text, 6)}")
    return "+".join(words)


def _added_parts(requirements: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the parts of a label that say what is there beside torch, and what was overridden."""
    parts = {"": requirements, "override-": overrides}
    return [kind + added_words(texts) for kind, texts in parts.items() if texts]


def folder_of(interpreter: Path) -> Path:
    """Return the environment that holds `interpreter` (ENV/bin/python)."""
    return interpreter.parent.parent if interpreter.parent.name in {"bin", "Scripts"} else interpreter.parent


# parts of a request
_NOT_INSTALLED = {"config", "hardware", "problem", "show_python", "folder", "matrix", "patch", "added", "added_options"}


class TorchConfig(OpenModel):
    """What `torch.__config__.show()` says."""

    components: tuple[str, ...] = ()
    settings: dict[str, str] = {}


class Processor(OpenModel):
    """The CPUs of a machine."""

    model: str = ""
    count: int | None = None
    usable: int | None = None  # by this process


class MetaKernel(OpenModel):
    """Where the Meta kernel of aten::mm is registered; one in Python takes the GIL."""

    registered: str | None = None
    kind: str | None = None
    python: bool | None = None


class Fingerprint(OpenModel):
    """What tells one torch and its machine from another. A string "unknown (ValueError)" replaces a failed answer."""

    torch: str | None = None
    git_version: str | None = None  # the commit that torch was built from
    debug: bool | str | None = None
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None
    python: str | None = None
    abi: str | None = None  # "cpython-311", "cpython-313t"
    gil: bool | str | None = None  # once torch was imported: a module may have turned it on again
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
    python: str  # full version, "3.11.7", "3.13.5t" of a build without the GIL
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
    requirements: tuple[str, ...] = ()  # that options or a script asked for
    overrides: tuple[str, ...] = ()  # versions that replace what packages ask for
    options: tuple[str, ...] = ()  # of the command line, that ask for just this environment again
    variables: dict[str, str] = {}  # that its cells run with: the config's, and the user's that are allowed here

    @property
    def axes(self) -> dict[str, str]:
        """What it is along each axis, as a request names it."""
        installed = {"torch": self.torch, "python": minor_python(self.python), "build": self.build}
        return {"config": self.config, "patch": self.patch, **installed, "hardware": self.hardware or ANY_HARDWARE}

    @property
    def added(self) -> str:
        """What was asked for beside torch, as its label has it."""
        return "+".join(_added_parts(self.requirements, self.overrides))

    @property
    def is_usable(self) -> bool:
        """True where cells can run."""
        return self.outcome is None

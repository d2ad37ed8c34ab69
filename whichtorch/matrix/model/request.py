"""An environment as it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, ConfigDict, Field

from whichtorch.matrix.model.base import Model, digest

NO_PATCH = "none"  # a release as it is, where a patch could be named

ANY_HARDWARE = "any"  # whatever machine there is, where a kind could be named


TABLE_NAME = "[NAME]"  # stands for the name of a table among its keys: no key of TOML reads so by chance


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


class Config(MatrixTable):
    """A named set of environment variables and start-up hooks."""

    env: dict[str, str] = {}  # values may name {beside}, the folder that `beside` was installed into
    hooks: tuple[str, ...] = ()  # modules of matrix/environments/inside/startup, run inside the environment
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
    """A kind of machine, by what it says of itself: every value that is named applies."""

    gpu: str = ""  # a glob, as are arch, cpu and host: of a model as its driver names it, "*H100*"
    driver: Specifier = ""  # ">=570"
    arch: str = ""  # "x86_64"
    cpu: str = ""
    host: str = ""


class Request(Model):
    """One environment as asked for: a torch release from a build, or an existing interpreter."""

    torch: str  # "2.11.0", "2.16.0.dev20261120+cpu", a wheel's path; "" for an existing interpreter
    python: str  # "3.11"; "" for an existing interpreter
    build: Build
    config: Config
    patch: Patch | None = None  # None: as it is installed
    hardware: Hardware | None = None  # None: any machine
    interpreter: Path | None = None  # an existing environment, used as it is
    requirements: tuple[str, ...] = ()  # for every environment of a matrix file
    lock: tuple[str, ...] = ()  # exact pins, "name==version" or "name @ url": nothing else is installed
    problem: str | None = None  # why it cannot be made, where planning already knows
    show_python: bool = False  # Python is an axis of the matrix, so it is part of the label
    matrix: Path | None = None  # the file that says what build, config and requirements are, but for the default one

    @property
    def label(self) -> str:
        """What people call it: stable from night to night, unique within a matrix."""
        if self.interpreter is not None:
            parts = ["python", _folder_name(self.interpreter)]
        else:
            wheel = self.torch.endswith(".whl")
            version = Path(self.torch).name.split("-")[1] if wheel else self.torch
            parts = ["torch", version, "wheel" if wheel else self.build.name]
            parts += [f"py{self.python}"] if self.show_python else []
            parts += [f"lock{digest(self.lock, 6)}"] if self.lock else []
        if self.config.name != "default":
            parts.append(self.config.name)
        label = "-".join(parts) + (f"+{self.patch.name}" if self.patch is not None else "")
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
        """What makes two requests the same: the installation, the config and the hardware."""
        return self.install_key, self.config.name, self.hardware_name

    @property
    def unpatched(self) -> Request:
        """The request for what the patch is applied to."""
        return self.model_copy(update={"patch": None})

    @property
    def install_key(self) -> str:
        """Names the installation: all that `label` says and the requirements, but not the config."""
        request = self.model_dump(mode="json", exclude=_NOT_INSTALLED)
        if not self.lock:
            del request["lock"]
        if self.patch is not None:
            request["patch"] = self.patch.key
        return digest(request)


def _folder_name(interpreter: Path) -> str:
    """Return the name of the environment that holds `interpreter` (ENV/bin/python)."""
    folder = interpreter.parent.parent if interpreter.parent.name in {"bin", "Scripts"} else interpreter.parent
    return folder.name or interpreter.name


_NOT_INSTALLED = {"config", "hardware", "problem", "show_python", "matrix", "patch"}  # parts of a request

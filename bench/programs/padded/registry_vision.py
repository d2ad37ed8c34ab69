"""Image models by name, built from a table of blocks."""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Callable, ClassVar

import torch
from torch import Tensor, nn

MODELS: dict[str, Callable[..., nn.Module]] = {}
BLOCKS: dict[str, type] = {}


def register_model(name: str):
    def wrap(function):
        MODELS[name] = function
        return function

    return wrap


def register_block(cls):
    BLOCKS[cls.kind.value] = cls
    return cls


class Kind(Enum):
    CONV = "conv"
    SHUFFLE = "shuffle"
    HEAD = "head"


class BaseBlock(nn.Module, ABC):
    kind: ClassVar[Kind]

    def __init__(self, inp: int, out: int, **options: Any) -> None:
        super().__init__()
        self.inp, self.out = inp, out
        self.options = options
        self.build()

    @abstractmethod
    def build(self) -> None: ...

    def extra_repr(self) -> str:
        return f"{self.inp}, {self.out}, {self.options}"


@register_block
class ConvBlock(BaseBlock):
    kind = Kind.CONV

    def build(self) -> None:
        self.conv = nn.Conv2d(self.inp, self.out, 3, padding=1, stride=self.options.get("stride", 1))
        self.norm = nn.BatchNorm2d(self.out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


@register_block
class ShuffleBlock(BaseBlock):
    kind = Kind.SHUFFLE

    def build(self) -> None:
        self.groups = self.options.get("groups", 0)

    @property
    def effective_groups(self) -> int:
        return self.groups // max(1, self.inp // 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.channel_shuffle(x, self.effective_groups)


@register_block
class Head(BaseBlock):
    kind = Kind.HEAD

    def build(self) -> None:
        self.fc = nn.Linear(self.inp, self.out)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.mean(-1).mean(-1))


def build(table: list[tuple]) -> nn.Sequential:
    layers = []
    for kind, inp, out, *rest in table:
        options = rest[0] if rest else {}
        layers.append(BLOCKS[kind](inp, out, **options))
    return nn.Sequential(*layers)


@register_model("shuffle_small")
def shuffle_small(classes: int = 10, **_: Any) -> nn.Module:
    return build(
        [
            ("conv", 3, 16, {"stride": 2}),
            ("shuffle", 16, 16, {"groups": 1}),
            ("conv", 16, 32),
            ("head", 32, classes),
        ]
    )


@register_model("plain")
def plain(classes: int = 10, **_: Any) -> nn.Module:
    return build([("conv", 3, 16), ("head", 16, classes)])


def deprecated(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        warnings.warn(f"{function.__name__} is deprecated", stacklevel=2)
        return function(*args, **kwargs)

    return inner


@deprecated
def create(name: str, **kwargs: Any) -> nn.Module:
    if name not in MODELS:
        raise KeyError(f"unknown model {name}; known: {sorted(MODELS)}")
    return MODELS[name](**kwargs).eval()


def run(names, sizes=(32, 64)):
    results = {}
    for name in names:
        model = create(name, classes=5)
        with torch.inference_mode():
            for size in sizes:
                out = model(torch.randn(2, 3, size, size))
                results[name, size] = tuple(out.shape)
    return results


if __name__ == "__main__":
    for key, value in run(["plain", "shuffle_small"]).items():
        print(key, value)

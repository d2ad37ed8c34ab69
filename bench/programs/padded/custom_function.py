"""A quantised layer with a gradient of its own, and a sweep over formats."""

import abc
import itertools
import json
import math
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch.autograd import Function
from torch.nn import Linear, Module, ModuleDict

CONFIG = json.loads('{"bits": [8, 4], "blocks": [16, 32, 24], "width": 64, "symmetric": [true, false]}')


class Level(IntEnum):
    TENSOR = 0
    ROW = 1
    BLOCK = 2


@dataclass(frozen=True)
class Format:
    bits: int
    block: int
    symmetric: bool = True
    level: Level = Level.BLOCK

    @property
    def low(self):
        return -(2 ** (self.bits - 1)) if self.symmetric else 0

    @property
    def high(self):
        return 2 ** (self.bits - 1) - 1 if self.symmetric else 2**self.bits - 1

    def describe(self):
        return f"int{self.bits}/{self.block}{'s' if self.symmetric else 'a'}"


class Quantiser(abc.ABC):
    def __init__(self, format):
        self.format = format

    @abc.abstractmethod
    def scale(self, weight): ...

    def __call__(self, weight):
        return Round.apply(weight, self.scale(weight), self.format)


class RowQuantiser(Quantiser):
    def scale(self, weight):
        return weight.abs().amax(-1, keepdim=True) / self.format.high


class BlockQuantiser(Quantiser):
    def scale(self, weight):
        rows, columns = weight.shape
        grouped = weight.view(rows, columns // self.format.block, self.format.block)
        return grouped.abs().amax(-1) / self.format.high


class Round(Function):
    @staticmethod
    def forward(ctx, weight, scale, format):
        ctx.save_for_backward(scale)
        match format.level:
            case Level.TENSOR:
                return weight / scale.mean()
            case Level.ROW:
                return weight / scale
            case Level.BLOCK if format.bits < 8:
                return weight
            case _:
                return weight * 1

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None


class QuantLinear(Module):
    def __init__(self, inner, quantiser):
        super().__init__()
        self.inner = inner
        self.quantiser = quantiser

    def forward(self, x):
        weight = self.quantiser(self.inner.weight)
        return x @ weight.transpose(0, 1)


class Net(Module):
    def __init__(self, width, format):
        super().__init__()
        kinds = {"up": RowQuantiser(replace(format, level=Level.ROW)), "down": BlockQuantiser(format)}
        self.layers = ModuleDict({name: QuantLinear(Linear(width, width), kind) for name, kind in kinds.items()})
        self.order = ["up", "down"]

    def forward(self, x):
        for name in self.order:
            x = self.layers[name](x)
        return x


def sweep(config):
    results = []
    for bits, block, symmetric in itertools.product(config["bits"], config["blocks"], config["symmetric"]):
        format = Format(bits, block, symmetric)
        if math.log2(config["width"]) % 1:
            continue
        net = Net(config["width"], format)
        error = net(torch.randn(3, config["width"])).mean()
        results.append((format.describe(), error.item()))
    return results


for label, error in sweep(CONFIG):
    print(f"{label:>10} {error:+.3f}")

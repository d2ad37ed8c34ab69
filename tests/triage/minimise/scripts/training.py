"""Fit a line to noisy points, with everything that such scripts have."""

import argparse
import logging
import math
import random
from dataclasses import dataclass, field
from typing import Iterator, List, Optional, Tuple

logging.basicConfig(level=logging.WARNING)
log = logging.getLogger("training")

SEED = 7


@dataclass
class Config:
    width: int = 8
    depth: int = 2
    rate: float = 0.01
    epochs: int = 3
    tags: List[str] = field(default_factory=lambda: ["a", "b"])


class Layer:
    """Scales what it gets."""

    def __init__(self, width: int, bias: Optional[float] = None) -> None:
        self.width = width
        self.bias = bias
        self.weights = [random.random() for _ in range(width)]

    def forward(self, values: List[float]) -> List[float]:
        scaled = [value * weight for value, weight in zip(values, self.weights)]
        if self.bias is not None:
            scaled = [value + self.bias for value in scaled]
        return scaled

    def __call__(self, values: List[float]) -> List[float]:
        return self.forward(values)


class Norm(Layer):
    def forward(self, values: List[float]) -> List[float]:
        total = math.sqrt(sum(value * value for value in values))
        log.debug("norm %s", total)
        return [value / total for value in values]


class Model:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.layers = [Layer(config.width, 0.5) for _ in range(config.depth)]
        self.norm = Norm(config.width)

    def __call__(self, values: List[float]) -> float:
        for layer in self.layers:
            values = layer(values)
        values = self.norm(values)
        return self.score(values)

    def score(self, values: List[float]) -> float:
        index = self.config.width + 1
        return values[index]


def batches(config: Config) -> Iterator[Tuple[List[float], float]]:
    for _ in range(4):
        yield [random.random() for _ in range(config.width)], random.random()


def train(model: Model, config: Config) -> float:
    total = 0.0
    for epoch in range(config.epochs):
        for step, (values, target) in enumerate(batches(config)):
            loss = (model(values) - target) ** 2
            total += loss
            if step % 2 == 0:
                print(f"epoch {epoch} step {step}: {loss:.3f}")
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args([])
    if args.verbose:
        log.setLevel(logging.DEBUG)
    random.seed(SEED)
    config = Config(width=args.width)
    model = Model(config)
    print("loss", train(model, config))


if __name__ == "__main__":
    main()

from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class OptimizerConfig:
    name: str = "sgd"
    lr: float = 0.1
    options: dict = field(default_factory=lambda: {"momentum": 0.9})


@dataclass
class ModelConfig:
    width: int = 32
    depth: int = 2
    activation: str = "gelu"
    dropout: float = 0.0


@dataclass
class Config:
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    seed: int = 7


ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def build_model(config):
    layers = []
    for _ in range(config.depth):
        layers += [nn.Linear(config.width, config.width), ACTIVATIONS[config.activation]()]
        if config.dropout > 0:
            layers.append(nn.Dropout(config.dropout))
    return nn.Sequential(*layers)


def build_optimizer(config, model):
    return OPTIMIZERS[config.name](model.parameters(), lr=config.lr, **config.options)


config = Config(optimizer=OptimizerConfig(name="adam", lr=0.01))
torch.manual_seed(config.seed)
model = build_model(config.model)
optimizer = build_optimizer(config.optimizer, model)
model(torch.randn(4, config.model.width)).sum().backward()
optimizer.step()

"""Shapes of a mixture-of-experts layer on the meta device, before anything is allocated."""

import argparse
import json
import logging
import os
import sys
from dataclasses import asdict, dataclass, field
from typing import Dict, List, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger(__name__)
DEFAULT_DEVICE = os.environ.get("ROUTER_DEVICE", "meta")


@dataclass
class RouterConfig:
    hidden: int = 64
    experts: int = 8
    top_k: int = 2
    capacity: float = 1.25
    device: str = DEFAULT_DEVICE
    tags: List[str] = field(default_factory=list)

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> "RouterConfig":
        return cls(hidden=args.hidden, experts=args.experts, device=args.device)


class Expert(nn.Module):
    """A feed-forward network."""

    def __init__(self, hidden: int, factor: int = 4) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, hidden * factor)
        self.down = nn.Linear(hidden * factor, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Router(nn.Module):
    def __init__(self, config: RouterConfig) -> None:
        super().__init__()
        self.config = config
        self.gate = nn.Linear(config.hidden, config.experts, bias=False)
        self.experts = nn.ModuleList([Expert(config.hidden) for _ in range(config.experts)])
        self.stats: Dict[str, float] = {}

    def route(self, x: torch.Tensor) -> torch.Tensor:
        scores = F.softmax(self.gate(x), dim=-1)
        mask = torch.ones(*scores.shape, device=self.config.device)
        chosen = torch.nonzero(mask)
        self.stats["chosen"] = len(chosen)
        return chosen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.route(x)
        for index, expert in enumerate(self.experts):
            if index >= self.config.top_k:
                break
            x = x + expert(x)
        logger.debug("routed %s", chosen.shape)
        return x


def parse(argv: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--device", default=DEFAULT_DEVICE)
    parser.add_argument("--dump", action="store_true", help="print the config")
    return parser.parse_args(argv)


def main() -> int:
    args = parse([])
    config = RouterConfig.from_args(args)
    if args.dump:
        print(json.dumps(asdict(config)))
    model = Router(config)
    batch = torch.randn(4, 16, config.hidden, device=config.device)
    out = model(batch)
    print(out.shape)
    return 0


if __name__ == "__main__":
    sys.exit(main())

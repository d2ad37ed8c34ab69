#!/usr/bin/env python
"""Benchmark an operator from the command line."""

import argparse
import logging
import sys
import time

import torch

logger = logging.getLogger("bench")
OPERATORS = {"mm": torch.mm, "bmm": torch.bmm, "baddbmm": lambda a, b: torch.baddbmm(a, a, b)}


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", choices=sorted(OPERATORS), default="bmm")
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(argv)


def timed(function, repeat):
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def main():
    args = parse([])
    logging.basicConfig(level=logging.DEBUG if args.verbose else logging.ERROR)
    dtype = getattr(torch, args.dtype)
    a = torch.rand(args.size, args.size, dtype=dtype)
    b = torch.rand(args.size, args.size, dtype=dtype)
    logger.info("shapes %s %s", a.shape, b.shape)
    try:
        seconds = timed(lambda: OPERATORS[args.operator](a, b), args.repeat)
    except KeyboardInterrupt:
        return 130
    print(f"{args.operator}: {seconds * 1e6:.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())

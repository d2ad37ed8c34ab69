"""`python -m bench.faults [FAMILY ...]`: let faults strike, and print what came of each."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from bench.faults import cache, death, disk, network, records
from bench.faults.fault import strike_all
from bench.faults.ground import Fields
from tests.cli.shell import old_and_new
from tests.wheels import serve

FAULTS = [each for family in (death, disk, records, cache, network) for each in family.FAULTS]


def main() -> int:
    """Exit with 1 where a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("words", nargs="*", help="of a family or a fault")
    parser.add_argument("--moments", type=int, default=50, help="at which each death strikes")
    parser.add_argument("--seed", type=int, default=27)
    asked = parser.parse_args()
    chosen = [
        each for each in FAULTS if not asked.words or any(word in (each.family, each.name) for word in asked.words)
    ]
    since = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, serve(old_and_new(Path(folder) / "wheels")) as index:
        reports = strike_all(Fields(Path(folder), index, asked.seed), chosen, asked.moments)
    print(
        tabulate([(each.fault.family, each.fault.name, each.text) for each in reports], headers=["family", "fault", ""])
    )
    broken = [f"{each.fault.name}: {text}" for each in reports for text in each.broken]
    print(*broken, f"{len(reports)} faults, {time.monotonic() - since:.0f} s", sep="\n\n")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.faults [FAMILY ...]`: let faults strike, and print what came of each."""

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from bench.faults import cache, death, disk, hostile, machine, network, people, records, scripts
from bench.faults.fault import Report, strike_all
from bench.faults.ground import Fields, restore_default_signals
from tests.cli.shell import old_and_new
from tests.wheels import serve
from whichtorch.base.grouping import grouped

FAMILIES = (death, disk, machine, records, cache, network, scripts, people, hostile)
FAULTS = [each for family in FAMILIES for each in family.FAULTS]
SEED = 27
HEADERS = ("family", "fault", "result")
TABLE = re.compile(r"(?<=<!-- faults -->\n).*(?=<!-- end -->)", re.DOTALL)  # of the page, which the suite writes


def strike(folder: Path, words: Sequence[str], moments: int, seed: int, most: int | None = None) -> list[Report]:
    """Let the faults of some families, or with some names, strike; without words all of them.

    With `most`, only so many of each family, which the seed chooses.
    """
    chosen = [each for each in FAULTS if not words or {each.family, each.name} & set(words)]
    if most is not None:
        families = grouped(chosen, lambda fault: fault.family).values()
        chosen = [each for family in families for each in random.Random(seed).sample(family, min(most, len(family)))]
    restore_default_signals()
    with serve(old_and_new(folder / "wheels")) as index:
        return strike_all(Fields(folder, index, seed), chosen, moments)


def with_table(page: str, reports: Sequence[Report]) -> str:
    """Return a page with what came of whole families now, and of the others when they struck last."""
    found = TABLE.search(page)
    lines = [tuple(map(str.strip, line.strip("|").split("|"))) for line in found[0].splitlines()] if found else []
    known = {line[0]: line[-1] for line in lines}
    for name, struck in grouped(reports, lambda report: report.fault.family).items():
        if len(struck) < sum(each.family == name for each in FAULTS):
            continue  # a part of a family does not count for all of it
        times, broken = sum(each.times for each in struck), sum(len(each.broken) for each in struck)
        idle = sum(not each.times for each in struck)
        known[name] = f"{times - broken} of {times}" + (f"; {idle} not tried" if idle else "")
    rows = [
        (family.FAULTS[0].family, (family.__doc__ or "").partition("\n")[0], len(family.FAULTS)) for family in FAMILIES
    ]
    ordered = [(*row, known.get(row[0], "not tried yet")) for row in rows]
    headers = ("family", "what strikes, and what must hold", "faults", "kept")
    return TABLE.sub(lambda _: tabulate(ordered, headers=headers, tablefmt="github") + "\n", page)


def main() -> int:
    """Exit with 1 where a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("words", nargs="*", help="of a family or a fault")
    parser.add_argument("--moments", type=int, default=50, help="how many random moments to try")
    parser.add_argument("--most", type=int, metavar="N", help="run only N faults of each family")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--page", type=Path, help="write the table into a page of the documentation")
    asked = parser.parse_args()
    since = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        reports = strike(Path(folder), asked.words, asked.moments, asked.seed, asked.most)
    rows = [(each.fault.family, each.fault.name, each.text) for each in reports]
    print(tabulate(rows, headers=HEADERS))
    broken = [f"{each.fault.name}: {text}" for each in reports for text in each.broken]
    summary = f"{len(reports)} faults, {sum(each.times for each in reports)} times, seed {asked.seed}"
    print(*broken, f"{summary}, {time.monotonic() - since:.0f} s", sep="\n\n")
    if asked.page:
        asked.page.write_text(with_table(asked.page.read_text(), reports))
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

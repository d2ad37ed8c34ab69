"""`nox -s bench [-- ROW ...]`: measure, and print a table of target and figure.

The row of group `real` installs a release of torch. Rows of group `hangs` ask how soon and how surely hangs are told
from slow work: hours, with a Python that has torch and with `g++`. Rows of group `fork` run the suite, and scripts that
look for differences, with such a Python, cold and forked. The row of group `faults` lets faults strike while commands
run, an hour; `--most 3 --moments 2` takes two minutes. The rows of group `numbers` search for slowdowns that are
planted in stand-ins, hours; `--searches 5` makes fewer. The row of group `soak` makes ten thousand attempts while
faults strike, half an hour; `--seconds 120` ends it earlier. Its row `two-paths` runs two tools on one state folder
for an hour, or as many seconds.
Without names everything but these runs; `all` runs everything.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from bench import (
    answer_rows,
    fault_rows,
    fork_rows,
    hang_rows,
    hangs,
    number_rows,
    rank_rows,
    search_rows,
    soak,
    stop_rows,
)
from bench.row import BenchRow


def main() -> int:
    """Run the rows asked for; exit 1 where one misses its target."""
    parser = argparse.ArgumentParser(prog="nox -s bench --", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all, real, hangs, or a row's name")
    parser.add_argument("--interpreter", default=sys.executable, help="a Python with torch, for hangs and fork")
    parser.add_argument("--runs", type=int, default=hangs.RUNS, help="of healthy programs, for hangs-slow")
    parser.add_argument("--moments", type=int, default=50, help="how many random moments to try")
    parser.add_argument("--most", type=int, metavar="N", help="run only N faults of each family")
    parser.add_argument("--searches", type=int, default=100, help="of each row of the group numbers")
    parser.add_argument("--seconds", type=float, help="end the rows of the soak after this many seconds")
    parser.add_argument("--scripts", type=Path, action="append", default=[], help="a folder more, for the group fork")
    asked = parser.parse_args()
    rows: list[BenchRow] = [
        *answer_rows.ROWS,
        *stop_rows.ROWS,
        *hang_rows.ROWS,
        *search_rows.ROWS,
        *number_rows.rows(asked.searches),
        *hangs.rows(asked.interpreter, asked.runs),
        *rank_rows.rows(asked.interpreter),
        *fork_rows.rows(asked.interpreter, asked.scripts),
        *fault_rows.rows(asked.moments, asked.most),
        *soak.rows(asked.seconds),
    ]
    wanted = set(asked.rows)
    names = {"all", *(name for row in rows for name in (row.name, row.group) if name)}
    if unknown := wanted - names:
        parser.error(f"no row is called {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}")
    chosen = [row for row in rows if row.is_wanted(wanted)]
    measured = []
    for row in chosen:
        print(f"measuring {row.name}: {row.what}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="whichtorch-bench-") as folder:
            figure = row.measure(Path(folder))
        measured.append((row.name, row.what, row.target, figure.text, "met" if figure.met else "MISSED"))
        print(f"  {figure.text}", file=sys.stderr, flush=True)
    print(tabulate(measured, headers=["row", "what", "target", "measured", ""], disable_numparse=True))
    return int(any(line[-1] == "MISSED" for line in measured))


if __name__ == "__main__":
    sys.exit(main())

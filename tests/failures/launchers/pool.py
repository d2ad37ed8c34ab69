import multiprocessing
import sys
from fail import fail

with multiprocessing.get_context("fork").Pool(1) as pool:
    pool.map(fail, [sys.argv[1]])

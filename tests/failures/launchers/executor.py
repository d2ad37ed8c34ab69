import concurrent.futures
import multiprocessing
import sys
from fail import fail

with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
    print(list(executor.map(fail, [sys.argv[1]])))

import multiprocessing
import sys
from fail import fail

child = multiprocessing.get_context("fork").Process(target=fail, args=(sys.argv[1],), name="Child-1")
child.start()
child.join()
if child.exitcode:
    raise SystemExit("a child has failed")

import sys
from fail import fail

fail(sys.argv[1])

import os
import sys
import time
from torch.distributed.elastic.multiprocessing.errors import record
from fail import fail


@record
def main():
    if os.environ["RANK"] == "1":
        fail(sys.argv[1])
    time.sleep(60)


if __name__ == "__main__":
    main()

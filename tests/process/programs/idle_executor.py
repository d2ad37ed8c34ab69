import time
from concurrent.futures import ProcessPoolExecutor as T

if __name__ == "__main__":
    with T(2) as t:
        list(t.map(time.sleep, [7, 7]))

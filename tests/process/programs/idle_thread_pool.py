import time
from concurrent.futures import ThreadPoolExecutor as T

with T(4) as t:
    list(t.map(abs, range(9)))
    time.sleep(8)

# asks a pool for a result again and again
import concurrent.futures as cf, time

with cf.ThreadPoolExecutor(1) as pool:
    future = pool.submit(time.sleep, 13)
    while True:
        try:
            future.result(timeout=0.5)
            break
        except cf.TimeoutError:
            continue

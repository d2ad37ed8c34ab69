import os, time

with open("saved", "wb") as file:
    while True:
        file.write(os.urandom(200_000))
        file.flush()
        os.fsync(file.fileno())
        time.sleep(0.2)

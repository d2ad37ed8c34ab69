"""A worker skips an item without marking it as done, and the queue is joined."""

import queue
import threading


class Uploader(threading.Thread):
    def __init__(self):
        super().__init__(name="uploader", daemon=True)
        self.jobs = queue.Queue()

    def run(self):
        while True:
            job = self.jobs.get()
            if job.startswith("."):
                continue
            print(job)
            self.jobs.task_done()


uploader = Uploader()
uploader.start()
for name in (".cache", "weights"):
    uploader.jobs.put(name)
uploader.jobs.join()

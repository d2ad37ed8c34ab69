"""Two of three workers report, and a condition waits until all have."""

import threading


class Gather:
    def __init__(self, expected):
        self.reports, self.expected = [], expected
        self.changed = threading.Condition()

    def report(self, value):
        with self.changed:
            self.reports.append(value)
            self.changed.notify_all()

    def wait(self):
        with self.changed:
            self.changed.wait_for(lambda: len(self.reports) >= self.expected)


gather = Gather(3)
workers = [threading.Thread(target=gather.report, args=(number,)) for number in range(2)]
for worker in workers:
    worker.start()
gather.wait()

"""The script is through, but a child that is no daemon waits for the next job."""

import multiprocessing as mp


def serve(jobs):
    while (job := jobs.get()) != "stop":
        print(job)


if __name__ == "__main__":
    context = mp.get_context("fork")
    jobs = context.Queue()
    context.Process(target=serve, args=(jobs,), name="server").start()
    jobs.put("evaluate")

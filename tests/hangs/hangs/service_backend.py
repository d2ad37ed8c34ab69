"""A backend of torch.compile asks a service thread for code; the thread has died of an unknown operator."""

import queue
import threading

import torch

jobs, results = queue.SimpleQueue(), queue.SimpleQueue()
KNOWN = {"add"}


def serve():
    while True:
        graph = jobs.get()
        for node in graph.graph.nodes:
            if node.op == "call_function" and node.target.__name__ not in KNOWN:
                raise NotImplementedError(node.target.__name__)
        results.put(graph.forward)


def remote(graph, inputs):
    jobs.put(graph)
    return results.get()


threading.Thread(target=serve, name="codegen", daemon=True).start()
step = torch.compile(lambda x: torch.sin(x) + 1, backend=remote)
print(step(torch.ones(2)))

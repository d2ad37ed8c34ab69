"""A reply is awaited of a server thread that answers nothing to an unknown request."""

import threading
from queue import SimpleQueue

requests, replies = SimpleQueue(), SimpleQueue()


def serve():
    while (request := requests.get()) != "stop":
        if request == "loss":
            replies.put(0.5)


def ask(request):
    requests.put(request)
    return replies.get()


threading.Thread(target=serve, name="server", daemon=True).start()
print(ask("loss"), ask("accuracy"))

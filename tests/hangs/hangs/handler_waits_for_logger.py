"""A handler sends records by a thread that logs itself, and waits for it."""

import logging
import threading


class RemoteHandler(logging.Handler):
    def emit(self, record):
        sender = threading.Thread(target=self.send, args=(record.getMessage(),), name="sender")
        sender.start()
        sender.join()

    def send(self, message):
        if threading.current_thread().name == "sender":
            logging.getLogger("remote").warning("sending %s", message)


logging.getLogger().addHandler(RemoteHandler())
logging.getLogger("train").error("loss is nan")

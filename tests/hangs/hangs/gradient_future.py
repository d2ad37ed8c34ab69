"""A communication hook gives back a future that a thread should complete; the thread has ended with an exception."""

import threading

import torch


class Compressor:
    def __init__(self):
        self.ratios = {}

    def compress(self, gradient, future):
        future.set_result(gradient / self.ratios[gradient.shape])

    def start(self, gradient):
        future = torch.futures.Future()
        threading.Thread(target=self.compress, args=(gradient, future), name="compressor").start()
        return future


compressor = Compressor()
model = torch.nn.Linear(3, 1)
model.weight.register_hook(lambda gradient: compressor.start(gradient).wait())
model(torch.ones(2, 3)).sum().backward()

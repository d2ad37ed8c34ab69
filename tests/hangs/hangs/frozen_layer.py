"""The main thread waits until all gradients have come; that of a frozen layer never does."""

import threading

import torch


class GradientGate:
    def __init__(self, model):
        self.condition = threading.Condition()
        self.missing = {name for name, _ in model.named_parameters()}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda _, name=name: self.arrive(name))

    def arrive(self, name):
        with self.condition:
            self.missing.discard(name)
            self.condition.notify_all()

    def wait(self):
        with self.condition:
            self.condition.wait_for(lambda: not self.missing)


model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
model[0].bias.requires_grad_(False)
gate = GradientGate(model)
worker = threading.Thread(target=lambda: model(torch.ones(1, 4)).sum().backward())
worker.start()
gate.wait()

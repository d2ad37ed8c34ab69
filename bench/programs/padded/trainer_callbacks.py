#!/usr/bin/env python3
import logging
import os
import random
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn as nn
import torch.optim as optim

logging.basicConfig(format="%(asctime)s %(message)s", level=logging.ERROR)
log = logging.getLogger("trainer")


class Callback:
    def on_train_begin(self, trainer):
        pass

    def on_batch_end(self, trainer, loss):
        pass

    def on_epoch_end(self, trainer, epoch):
        pass


class History(Callback):
    def __init__(self):
        self.values = defaultdict(list)

    def on_batch_end(self, trainer, loss):
        self.values["loss"].append(float(loss))

    def on_epoch_end(self, trainer, epoch):
        log.info("epoch %d: %.3f", epoch, sum(self.values["loss"]))


class Checkpoint(Callback):
    def __init__(self, folder, every=1):
        self.folder = Path(folder)
        self.every = every

    def on_epoch_end(self, trainer, epoch):
        if epoch % self.every == 0:
            torch.save(trainer.generator.state_dict(), self.folder / f"{epoch}.pt")


class GradientPenalty(Callback):
    weight = 10.0

    def on_batch_end(self, trainer, loss):
        real = trainer.last["real"]
        fake = trainer.last["fake"]
        mixed = real * 0.5 + fake * 0.5
        penalty = (trainer.critic(mixed) - 1) ** 2
        trainer.extra = self.weight * penalty.mean()


class Generator(nn.Module):
    def __init__(self, noise=8, width=32, out=20):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(noise, width), nn.ReLU(), nn.Linear(width, out), nn.Tanh())

    def forward(self, z):
        return self.main(z)


class Critic(nn.Module):
    def __init__(self, inp=20, width=32):
        super().__init__()
        self.first = nn.Linear(inp, width)
        self.second = nn.Linear(width, 1)
        self.act = nn.ReLU()

    def forward(self, x):
        h = self.act(self.first(x))
        return self.second(h)


class Trainer:
    def __init__(self, generator, critic, callbacks=(), lr=1e-3, noise=8):
        self.generator = generator
        self.critic = critic
        self.callbacks = list(callbacks)
        self.noise = noise
        self.g_opt = optim.Adam(generator.parameters(), lr=lr, betas=(0.5, 0.9))
        self.c_opt = optim.Adam(critic.parameters(), lr=lr, betas=(0.5, 0.9))
        self.criterion = nn.MSELoss()
        self.last = {}
        self.extra = None

    def fire(self, event, *args):
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def critic_step(self, real):
        z = torch.randn(real.size(0), self.noise)
        fake = self.generator(z).detach()
        self.last.update(real=real, fake=fake)
        loss = self.critic(fake).mean() - self.critic(real).mean()
        self.c_opt.zero_grad()
        loss.backward()
        self.c_opt.step()
        return loss

    def generator_step(self, count):
        z = torch.randn(count, self.noise)
        loss = -self.critic(self.generator(z)).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        return loss

    def fit(self, batches, epochs=2):
        self.fire("on_train_begin")
        for epoch in range(epochs):
            for number, real in enumerate(batches):
                loss = self.critic_step(real)
                if number % 2:
                    self.generator_step(4)
                try:
                    self.fire("on_batch_end", loss)
                except KeyError as error:
                    log.warning("callback failed: %s", error)
            self.fire("on_epoch_end", epoch)


def data(count=5, width=20):
    sizes = [4, 4, 4, 4, 4]
    for size in sizes[:count]:
        yield torch.rand(size, width)
    yield torch.rand(3, width + 1)[:, :width]
    yield torch.rand(1, width - 1)


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as tmp:
        trainer = Trainer(Generator(), Critic(), [History(), Checkpoint(tmp), GradientPenalty()])
        trainer.fit(list(data()), epochs=1)
    print("done")

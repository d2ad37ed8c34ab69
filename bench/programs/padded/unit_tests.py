"""Tests of a model, collected and run by hand."""

import io
import traceback
import unittest
from types import MethodType
from unittest import mock

import torch
import torch.nn as nn


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Encoder(nn.Module):
    def __init__(self, channels=(3, 8, 16), norm=True):
        super().__init__()
        blocks = []
        for inp, out in zip(channels, channels[1:]):
            blocks.append(nn.Conv2d(inp, out, kernel_size=3, padding=1))
            if norm:
                blocks.append(nn.BatchNorm2d(out))
            blocks.append(nn.ReLU())
        self.blocks = nn.Sequential(*blocks)
        self.skip = Residual(nn.Conv2d(channels[-1], channels[-1], kernel_size=3, padding=0))

    def forward(self, x, skip=False):
        x = self.blocks(x)
        if skip:
            x = self.skip(x)
        return x


class Base:
    channels = (3, 8, 16)
    batch = 2

    def setUp(self):
        torch.manual_seed(0)
        self.model = self.make()
        self.image = torch.randn(self.batch, self.channels[0], 8, 8)
        self.messages = []

    def tearDown(self):
        self.messages.clear()

    def make(self):
        return Encoder(self.channels)

    def check(self, output, channels):
        assert output.shape[1] == channels, output.shape
        self.messages.append(f"checked {tuple(output.shape)}")


class TestShapes(Base):
    def test_plain(self):
        self.check(self.model(self.image), self.channels[-1])

    def test_without_norm(self):
        model = Encoder(self.channels, norm=False)
        self.check(model(self.image), 16)

    def test_one_image(self):
        for index in range(self.batch):
            self.check(self.model(self.image[index : index + 1]), 16)


class TestPatched(Base):
    def make(self):
        model = super().make()
        model.forward = MethodType(lambda self, x, skip=False: type(self).forward(self, x, skip), model)
        return model

    def test_mock(self):
        with mock.patch.object(self.model, "skip", lambda x: x):
            self.check(self.model(self.image, skip=True), 16)


class TestSkip(Base):
    batch = 4

    def test_skip(self):
        output = self.model(self.image, skip=True)
        self.check(output, 16)


def run(cases):
    out = io.StringIO()
    for case in cases:
        for name in sorted(dir(case)):
            if not name.startswith("test"):
                continue
            test = case()
            test.setUp()
            try:
                getattr(test, name)()
            except AssertionError:
                traceback.print_exc(file=out)
            else:
                print("ok", case.__name__, name, file=out)
            finally:
                test.tearDown()
    return out.getvalue()


if __name__ == "__main__":
    print(run([TestShapes, TestPatched, TestSkip]))

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    expansion = 1

    def __init__(self, channels, stride=1):
        super().__init__()
        self.channels = channels
        self.stride = stride
        self.norm = self.make_norm()

    def make_norm(self):
        return nn.Identity()

    def body(self, x):
        raise NotImplementedError

    def forward(self, x):
        return F.relu(self.norm(self.body(x)) + x)


class ConvBlock(Block):
    def __init__(self, channels, stride=1, kernel=3):
        super().__init__(channels, stride)
        self.conv = nn.Conv2d(channels, channels * self.expansion, kernel, stride, padding=kernel // 2)

    def make_norm(self):
        return nn.BatchNorm2d(self.channels)

    def body(self, x):
        return self.conv(x)


class Bottleneck(ConvBlock):
    expansion = 2

    def make_norm(self):
        return nn.GroupNorm(2, self.channels)


class Net(nn.Module):
    def __init__(self, kinds, channels):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 1)
        self.blocks = nn.Sequential(*(kind(channels) for kind in kinds))
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(x.mean(dim=(2, 3)))


for name, kinds in {"plain": [ConvBlock, ConvBlock], "deep": [ConvBlock, Bottleneck]}.items():
    net = Net(kinds, 8)
    print(name, sum(p.numel() for p in net.parameters()), net(torch.randn(2, 3, 16, 16)).shape)

"""Loads made-up recordings, pads some of them, and forgets others."""

import random
from pathlib import PurePath
from typing import NamedTuple, Sequence

import torch
from torch.utils.data import DataLoader, Dataset


class Clip(NamedTuple):
    path: PurePath
    rate: int
    samples: int
    label: str = "none"


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, item):
        for step in self.steps:
            item = step(item)
        return item


class Pad:
    def __init__(self, length, only=None):
        self.length = length
        self.only = only

    def __call__(self, wave):
        missing = self.length - wave.size(-1)
        if missing <= 0 or (self.only is not None and missing > self.only):
            return wave
        return torch.cat([wave, torch.zeros(1, missing)], dim=-1)


class Gain:
    def __init__(self, low=0.5, high=1.5):
        self.low, self.high = low, high

    def __call__(self, wave):
        return wave * random.uniform(self.low, self.high)


class Clips(Dataset):
    classes = ["none", "bird", "rain"]

    def __init__(self, clips: Sequence[Clip], transform=None):
        super().__init__()
        self.clips = sorted(clips, key=lambda clip: (clip.label, str(clip.path)))
        self.transform = transform
        self._cache = {}

    def __len__(self):
        return len(self.clips)

    def load(self, clip):
        if clip.path not in self._cache:
            self._cache[clip.path] = torch.randn(1, clip.samples)
        return self._cache[clip.path]

    def __getitem__(self, index):
        clip = self.clips[index]
        wave = self.load(clip)
        if self.transform:
            wave = self.transform(wave)
        target = self.classes.index(clip.label)
        return wave, target, {"rate": clip.rate, "name": clip.path.stem}


def collate(items):
    waves, targets, infos = zip(*items)
    names = [info["name"] for info in infos]
    batch = torch.stack(list(waves))
    return batch, torch.tensor(list(targets)), names


def find_clips(count=9):
    lengths = [80, 100, 96, 100, 60, 100, 100, 70, 100]
    labels = Clips.classes * 3
    return [
        Clip(PurePath("clips", f"{number:03}.wav"), rate=16_000, samples=lengths[number], label=labels[number])
        for number in range(count)
    ]


def split(items, share=0.8):
    cut = int(len(items) * share)
    return items[:cut], items[cut:]


train_clips, test_clips = split(find_clips())
transform = Compose(Gain(), Pad(100, only=30))
train = DataLoader(Clips(train_clips, transform), batch_size=3, shuffle=True, collate_fn=collate)
test = DataLoader(Clips(test_clips), batch_size=1, collate_fn=collate)
lengths_seen = {}
for epoch in range(2):
    for batch, targets, names in train:
        for name, row in zip(names, range(len(batch))):
            lengths_seen.setdefault(name, []).append(batch.size(-1))
    for batch, targets, names in test:
        assert batch.size(0) == 1, names
print({name: sum(found) for name, found in lengths_seen.items()})

"""Train a small recurrent model on words, then decode with a beam."""

import argparse
import heapq
import re
from collections import Counter, deque

import torch
from torch import nn

TEXT = """
the quick brown fox jumps over the lazy dog while the slow red hen sleeps under the old oak tree and
the quick red fox looks at the brown dog
"""


class Vocab:
    PAD, UNK = "<pad>", "<unk>"

    def __init__(self, words, least=1):
        counted = Counter(words)
        self.itos = [self.PAD, self.UNK] + [w for w, n in counted.most_common() if n >= least]
        self.stoi = {word: i for i, word in enumerate(self.itos)}

    def __len__(self):
        return len(self.itos)

    def __getitem__(self, word):
        return self.stoi.get(word, self.stoi[self.UNK])

    def encode(self, words):
        return [self[w] for w in words]

    def decode(self, ids):
        return " ".join(self.itos[i] for i in ids)


def tokenize(text):
    for match in re.finditer(r"\w+", text.lower()):
        yield match.group()


def windows(ids, size, stride=1):
    buffer = deque(maxlen=size)
    for place, one in enumerate(ids):
        buffer.append(one)
        if len(buffer) == size and place % stride == 0:
            yield list(buffer)


class Cell(nn.Module):
    def __init__(self, inp, hidden):
        super().__init__()
        self.inp, self.hidden = inp, hidden
        self.gates = nn.Linear(inp + hidden, 4 * hidden)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], dim=-1)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)


class Model(nn.Module):
    def __init__(self, vocab, embed=12, hidden=16, tie=True):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), embed)
        self.cell = Cell(embed, hidden)
        self.out = nn.Linear(hidden, len(vocab))
        self.hidden = hidden
        if tie:
            self.out.weight = self.embed.weight

    def initial(self, batch):
        zeros = torch.zeros(batch, self.hidden)
        return zeros, zeros

    def forward(self, ids, state=None):
        state = state or self.initial(ids.size(0))
        outputs = []
        for t in range(ids.size(1)):
            x = self.embed(ids[:, t])
            h, state = self.cell(x, state)
            outputs.append(self.out(h))
        return torch.stack(outputs, dim=1), state


def beam(model, vocab, prompt, width=2, steps=3):
    beams = [(0.0, vocab.encode(prompt))]
    for _ in range(steps):
        candidates = []
        for score, ids in beams:
            logits, _ = model(torch.tensor([ids]))
            best = logits[0, -1].tolist()[:width]
            candidates += [(score - value, ids + [token]) for token, value in enumerate(best)]
        beams = heapq.nsmallest(width, candidates)
    return vocab.decode(beams[0][1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--no-tie", dest="tie", action="store_false")
    args = parser.parse_args([])
    words = list(tokenize(TEXT))
    vocab = Vocab(words)
    model = Model(vocab, tie=args.tie)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        batch = torch.tensor(list(windows(vocab.encode(words), args.window)))
        inputs, targets = batch[:, :-1], batch[:, 1:]
        logits, _ = model(inputs)
        loss = criterion(logits.reshape(-1, len(vocab)), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())
    print(beam(model, vocab, ["the", "quick"]))


if __name__ == "__main__":
    main()

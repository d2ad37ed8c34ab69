"""Run what any script may run: eager mode, meta and fake tensors, and the compilers that are named as arguments.

What this runs in a release is no sign of what is special about a script. Each step stands alone, for an old release
may not have it.
"""

from __future__ import annotations

import sys

import torch


def layer(x, weight):  # type: (torch.Tensor, torch.Tensor) -> torch.Tensor
    """Do a little of everything."""
    return torch.nn.functional.relu(x @ weight + 1.0).sum()


def pair(device="cpu"):  # type: (str) -> tuple[torch.Tensor, torch.Tensor]
    """Return the layer's arguments."""
    return torch.ones(4, 4, device=device), torch.ones(4, 4, device=device, requires_grad=True)


def eager():  # type: () -> None
    """Compute, differentiate, print and compare."""
    x, weight = pair()
    layer(x, weight).backward()
    torch.optim.SGD([weight], lr=0.1).step()
    print(torch.nn.Linear(4, 4)(x), weight.grad)
    torch.testing.assert_close(x, x + 0)


def failing():  # type: () -> None
    """Compare what differs, and add what does not fit."""
    try:
        torch.testing.assert_close(torch.ones(2), torch.zeros(2))
    except AssertionError as error:
        print(error)
    try:
        torch.ones(2) + torch.ones(3)
    except RuntimeError as error:
        print(error)


def meta():  # type: () -> None
    """Compute without data."""
    layer(*pair("meta"))


def fake():  # type: () -> None
    """Compute with fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        layer(*pair())


def dynamo():  # type: () -> None
    """Compile without a code generator, for fixed and for changing shapes."""
    for backend in ("eager", "aot_eager"):
        for dynamic in (False, True):
            torch._dynamo.reset()
            torch.compile(layer, backend=backend, dynamic=dynamic)(*pair()).backward()


def inductor():  # type: () -> None
    """Compile to native code, for fixed and for changing shapes."""
    torch.compile(layer, dynamic=False)(*pair()).backward()
    torch._dynamo.reset()
    torch.compile(layer, dynamic=True)(*pair()).backward()


def export():  # type: () -> None
    """Export a module."""

    class Layer(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def forward(self, x):  # type: (torch.Tensor) -> torch.Tensor
            return layer(x, x)

    torch.export.export(Layer(), (torch.ones(4, 4),))


COMPILERS = {"dynamo": dynamo, "inductor": inductor, "export": export}


def main(names):  # type: (list[str]) -> None
    """Run the steps; stderr says which of them this release lacks."""
    for step in [eager, failing, meta, fake] + [COMPILERS[name] for name in names]:
        try:
            step()
        except Exception as error:  # noqa: BLE001, PERF203
            print(step.__name__, type(error).__name__, error, file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])

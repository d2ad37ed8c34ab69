"""Values as `described_values.py` tells them, for tests."""

from typing import Any


def tensor(**fields: Any) -> dict[str, Any]:
    """Return a float tensor of two rows and three columns, or one with other fields."""
    return {
        "tensor": [2, 3],
        "dtype": "torch.float32",
        "device": "cpu",
        "stride": [3, 1],
        "layout": "torch.strided",
        "requires_grad": False,
        "parameter": False,
        "fake": False,
        **fields,
    }

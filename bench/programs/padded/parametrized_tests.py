import functools
import itertools

import torch


def parametrize(**axes):
    def wrap(function):
        @functools.wraps(function)
        def run():
            for values in itertools.product(*axes.values()):
                function(**dict(zip(axes, values)))

        return run

    return wrap


def assert_close(actual, expected, rtol=1e-5):
    assert actual.shape == expected.shape, f"{actual.shape} != {expected.shape}"
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=1e-6)


def make_mask(size, causal):
    return torch.ones(size, size).tril().bool() if causal else torch.ones(size, size).bool()


def reference(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


@parametrize(heads=[1, 2], causal=[False, True])
def test_attention(heads, causal):
    q, k, v = torch.randn(3, 2, heads, 5, 4)
    mask = make_mask(5, causal)
    actual = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_close(actual, reference(q, k, v, mask))


@parametrize(size=[2, 3], dtype=[torch.float32, torch.float64])
def test_inverse(size, dtype):
    a = torch.eye(size, dtype=dtype) * 2
    a[0, 0] = 0 if size == 3 else 1
    assert_close(torch.linalg.inv(a) @ a, torch.eye(size, dtype=dtype))


for test in [value for name, value in sorted(globals().items()) if name.startswith("test_")]:
    test()
    print(test.__name__, "passed")

import collections
import itertools
import operator
from functools import partial, reduce

import torch

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
SHAPES = [(2, 3), (3, 2), (1, 3), (4,)]
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
UNARY = {name: getattr(torch, name) for name in ("relu", "exp", "abs", "tanh") if hasattr(torch, name)}
BINARY = {"add": operator.add, "mul": operator.mul, "matmul": operator.matmul}
EXPECTED_FAILURES = {
    ("add", (2, 3), (3, 2)),
    ("mul", (2, 3), (3, 2)),
    *((op, a, (4,)) for op in BINARY for a in SHAPES),
}
make = {
    (shape, dtype, device): partial(torch.ones, *shape, dtype=dtype, device=device)
    for shape, dtype, device in itertools.product(SHAPES, DTYPES, DEVICES)
}


def product(numbers):
    return reduce(operator.mul, numbers, 1)


def chunks(items, size):
    items = list(items)
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def compatible(first, second):
    return all(a == b or 1 in (a, b) for a, b in zip(first[::-1], second[::-1]))


unary_results = {
    (name, key): tuple(function(new()).shape) for name, function in UNARY.items() for key, new in make.items()
}
assert all(shape == key[0] for (_, key), shape in unary_results.items())
counts = collections.Counter(product(shape) for shape in unary_results.values())
pairs = [
    (first, second)
    for first, second in itertools.combinations(make, 2)
    if first[1:] == second[1:] and first[0] != second[0]
]
cases = [
    (op, first, second)
    for op in BINARY
    for first, second in pairs
    if (op, first[0], second[0]) not in EXPECTED_FAILURES and (op == "matmul" or compatible(first[0], second[0]))
]
labels = [f"{op}-{'x'.join(map(str, a[0]))}-{'x'.join(map(str, b[0]))}-{a[1]}" for op, a, b in cases]
table = collections.defaultdict(dict)
for group in chunks(zip(labels, cases), 4):
    shapes = {label: BINARY[op](make[a](), make[b]()).shape for label, (op, a, b) in group}
    for label, shape in shapes.items():
        table[label.split("-")[0]][label] = max((size for size in shape), default=0)
widths = {op: max(map(len, rows), default=0) for op, rows in table.items()}
report = "\n".join(
    f"{label:<{widths[op]}} {value}" for op, rows in sorted(table.items()) for label, value in sorted(rows.items())
)
print(report, dict(counts))

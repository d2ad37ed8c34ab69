import os
import sys
import time
import torch


def main(argv):
    verbose = "-v" in argv
    device = torch.device("cpu")
    start = time.time()
    failures = 0
    total = 0
    with open(os.devnull, "w") as out:
        for width in (8, 16):
            for depth in range(1, 4):
                layers = []
                for i in range(depth):
                    if i == 0:
                        layer = torch.nn.Linear(4, width)
                    else:
                        if i % 2 == 1:
                            layer = torch.nn.Linear(width, width)
                        else:
                            layer = torch.nn.Linear(width, width + (1 if width > 8 else 0))
                    layers.append(layer)
                while len(layers) < 3:
                    layers.append(torch.nn.ReLU())
                try:
                    for batch in (1, 2, 5):
                        x = torch.randn(batch, 4, device=device)
                        for number, layer in enumerate(layers):
                            total += 1
                            if isinstance(layer, torch.nn.Linear):
                                if layer.weight.size(1) == x.size(-1):
                                    x = layer(x)
                                    if verbose:
                                        print("ok", number, x.shape, file=out)
                                else:
                                    failures += 1
                                    continue
                            else:
                                x = layer(x)
                        if batch > 1:
                            y = torch.zeros(batch, width)
                            with torch.no_grad():
                                for row in range(batch):
                                    if row == batch - 1:
                                        error = (x - y).abs()
                                        if error.mean() is not None:
                                            if row:
                                                y = y + error
                except ZeroDivisionError:
                    print("division", file=sys.stderr)
                    raise
                finally:
                    elapsed = time.time() - start
                    if elapsed > 1000:
                        sys.exit("too slow")
                if depth == 3:
                    if failures:
                        print("failures:", failures, file=out)
                    else:
                        print("all", total, "ok", file=out)
    return 0


if __name__ == "__main__":
    main(sys.argv[1:] if len(sys.argv) > 5 else ["-v"])

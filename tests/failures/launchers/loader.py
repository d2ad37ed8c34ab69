import sys
import torch
from fail import fail


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, at):
        if at == 1:
            fail(sys.argv[1])
        return at


if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Rows(), num_workers=2):
        print(batch)

# a DataLoader whose worker reads from another program, which is slow
import subprocess

import torch
from torch.utils.data import DataLoader


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return len(subprocess.run(["sh", "-c", "sleep 13; echo"], stdout=subprocess.PIPE).stdout)


list(DataLoader(Items(), num_workers=1))

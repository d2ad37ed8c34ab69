# a DataLoader whose worker sleeps over its first batch
import time

import torch
from torch.utils.data import DataLoader


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        time.sleep(13)
        return index


list(DataLoader(Items(), num_workers=1, batch_size=2))

"""Many machines: batches of cells go to workers, and what comes of them into one run on this machine."""

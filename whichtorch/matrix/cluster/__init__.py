"""Many machines: batches of cells go to workers, and what comes of them into one run on this machine."""

PORT = 8786  # of a scheduler

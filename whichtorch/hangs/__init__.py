"""From the stacks of a stuck process tree to who waits for whom."""

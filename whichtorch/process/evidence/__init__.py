"""What is seen of a process tree while it runs: waits, stalls, samples, stacks."""

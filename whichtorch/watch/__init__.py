"""Looking at the machine, at processes and at environments."""

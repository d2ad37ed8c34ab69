"""Numbers as tests: what is measured of a run, how runs of environments alternate, and what the numbers decide."""

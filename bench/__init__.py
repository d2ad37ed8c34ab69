"""What the tool itself costs: ratios and figures taken in one run."""

"""From a matrix file and options to the cells of a run."""

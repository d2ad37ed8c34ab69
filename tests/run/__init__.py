"""Tests of whichtorch.matrix.run."""

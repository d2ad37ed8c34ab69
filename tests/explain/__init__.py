"""Tests of whichtorch.matrix.explain."""

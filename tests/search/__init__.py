"""Tests of whichtorch.matrix.search."""

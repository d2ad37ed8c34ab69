"""Tests of whichtorch.matrix.compare."""

"""Tests of whichtorch.matrix.suite."""

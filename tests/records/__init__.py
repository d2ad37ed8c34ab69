"""Tests of whichtorch.matrix.records."""

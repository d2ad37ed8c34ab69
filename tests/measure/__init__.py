"""Tests of whichtorch.matrix.trial."""

"""Tests of whichtorch.matrix.cluster."""

"""Tests of whichtorch.matrix.plan."""

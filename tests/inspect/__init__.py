"""Tests of whichtorch.matrix.inspect."""

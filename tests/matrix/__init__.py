"""Tests of whichtorch.matrix."""

"""Tests of whichtorch.matrix.fix."""

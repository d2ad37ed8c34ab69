"""Tests of whichtorch.matrix.source."""

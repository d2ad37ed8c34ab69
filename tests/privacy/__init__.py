"""Tests of whichtorch.matrix.privacy."""

"""Tests of whichtorch.explain."""

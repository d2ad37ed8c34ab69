"""Tests of whichtorch.search."""

"""Tests of whichtorch.failures."""

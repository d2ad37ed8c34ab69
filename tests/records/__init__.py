"""Tests of whichtorch.records."""

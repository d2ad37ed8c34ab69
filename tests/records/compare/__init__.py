"""Tests of whichtorch.records.compare."""

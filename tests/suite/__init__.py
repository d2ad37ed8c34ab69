"""Tests of whichtorch.suite."""

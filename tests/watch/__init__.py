"""Tests of whichtorch.watch."""

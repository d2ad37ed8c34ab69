"""Tests of whichtorch.base."""

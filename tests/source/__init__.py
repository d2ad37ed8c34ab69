"""Tests of whichtorch.source."""

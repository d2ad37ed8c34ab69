"""Tests of whichtorch.matrix.bisect, over synthetic histories."""

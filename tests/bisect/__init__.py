"""Tests of whichtorch.bisect, over synthetic histories."""

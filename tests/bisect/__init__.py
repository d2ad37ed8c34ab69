"""Tests of matrix.bisect, over synthetic histories."""

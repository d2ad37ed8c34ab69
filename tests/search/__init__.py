"""Tests of matrix.search, over synthetic histories."""

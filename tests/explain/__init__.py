"""Tests of matrix.explain."""

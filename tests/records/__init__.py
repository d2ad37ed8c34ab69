"""Tests of matrix.records."""

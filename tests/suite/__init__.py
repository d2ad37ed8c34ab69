"""Tests of matrix.suite."""

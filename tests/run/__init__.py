"""Tests of matrix.run."""

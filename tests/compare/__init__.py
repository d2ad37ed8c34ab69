"""Tests of matrix.compare."""

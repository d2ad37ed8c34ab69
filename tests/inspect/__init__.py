"""Tests of matrix.inspect."""

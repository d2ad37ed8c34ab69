"""Tests of matrix/answer."""

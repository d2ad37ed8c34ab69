"""Tests of whichtorch.answer."""

"""Searching for where something changed: strategy.py is pure, bisect.py drives it."""

"""Supervision, its parts and its tiny programs."""

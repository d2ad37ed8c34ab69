"""Faults injected while real commands run, and what must hold afterwards: `nox -s bench -- faults`."""

"""Read JSON that a collector may have written only in part. What makes no sense is left out, and nothing raises."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str) -> Any:
    """Return the value of a JSON text; None where it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def dictionaries(value: object) -> list[dict[str, Any]]:
    """Return the dictionaries in a list; none where the value is no list."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []

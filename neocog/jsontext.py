"""JSON as every program reads it: it knows no NaN and no infinity."""

import json
import math
from typing import Any


def to_json(value: Any, **options: Any) -> str:
    """Return a value as JSON, with null for each number that is not finite.

    ``options`` are those of :func:`json.dumps`.

    >>> to_json({"p": 0.5, "error": float("nan")})
    '{"p": 0.5, "error": null}'
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key if not isinstance(key, float) or math.isfinite(key) else str(key): _finite(own)
            for key, own in value.items()
        }
    if isinstance(value, list | tuple):
        return [_finite(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

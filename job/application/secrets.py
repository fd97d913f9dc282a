"""Secrets in the options of an application: they come from a Secret of Kubernetes, by the environment of its pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REFERENCE = re.compile(r"\$\{(\w+)\}", re.ASCII)
_SECRET = re.compile(r"password|secret|token|jaas|keystore\.key|basic\.auth", re.IGNORECASE)


def references_in(properties: Mapping[str, Any]) -> list[str]:
    """Return the environment variables that client properties refer to, each once."""
    found = [name for value in properties.values() if isinstance(value, str) for name in _REFERENCE.findall(value)]
    return list(dict.fromkeys(found))


def in_plain_text(properties: Mapping[str, Any]) -> list[str]:
    """Return the properties that hold a secret as it is."""
    written = {str(key): value for key, value in properties.items() if isinstance(value, str)}
    return [
        key
        for key, value in written.items()
        if _SECRET.search(key) and not _REFERENCE.search(value) and not key.endswith((".class", ".url", ".location"))
    ]

"""Errors of an export."""

from __future__ import annotations

from freshet.gnn.model import ModelError


class ExportError(ModelError):
    """A module that Freshet cannot take over as it is; the message names the part and says why."""

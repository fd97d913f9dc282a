"""Results of a forward with kinds: rows of one kind, or a dict of rows by kind."""

from __future__ import annotations

from typing import Any

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations


def listed(name: str, returned: Any) -> dict[str | None, Any]:
    """Return nodes by the kind that they are returned as; None for one without a name.

    Raises: ExportError for anything else.
    """
    if hasattr(returned, "all_input_nodes"):
        return {None: returned}
    if isinstance(returned, dict):
        there = {key: value for key, value in returned.items() if value is not None}
        if there and all(hasattr(one, "all_input_nodes") for one in there.values()):
            return there
    keys = (
        list(returned)
        if isinstance(returned, dict)
        else list(range(len(returned) if isinstance(returned, tuple | list) else 0))
    )
    msg = f"{name} returns {type(returned).__name__}, expected rows of one kind, or a dict of rows by kind"
    if keys:
        shown = ", ".join(f"output={key!r}" for key in keys)
        msg += f". Say which one is the embedding, as in export_model(module, folder, output=...): {shown}"
    raise ExportError(msg)


def refuse_misnamed(name: str, ops: KindsOperations, kinds: Metadata, results: dict[str | None, str]) -> None:
    """Refuse rows that are returned under another name than that of their kind.

    Raises: ExportError naming both.
    """
    for key, rows in results.items():
        kind = kinds.names[ops.kind[rows]]
        if key is not None and key != kind:
            refuse(f"{name} returns rows of kind {kind!r} as {key!r}: return them as {kind!r}, or say output={key!r}")

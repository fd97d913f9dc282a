"""Writing of an exported model, in place of another one only where that is asked for."""

from __future__ import annotations

from pathlib import Path

from freshet.gnn.kinds.model import KindsModel, load_any_model
from freshet.gnn.model import SPEC_FILE, WEIGHTS_FILE, Model, ModelError, save_model
from freshet.gnn.pyg.errors import ExportError


def write_model(model: Model | KindsModel, folder: Path, *, overwrite: bool) -> None:
    """Write a model folder.

    Raises: ExportError where it cannot be written, or has another model, or one of the files of a model.
    """
    if not overwrite:
        _refuse_other(model, folder)
    try:
        save_model(model, folder)
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror or error}; name a new or empty folder"
        raise ExportError(msg) from error


def _refuse_other(model: Model | KindsModel, folder: Path) -> None:
    found = [name for name in (SPEC_FILE, WEIGHTS_FILE) if (folder / name).exists()]
    if not found:
        return
    try:
        if load_any_model(folder).sha256() == model.sha256():
            return
        there = "another model"
    except ModelError:  # an unfinished one, or weights that are somebody's
        there = " and ".join(found)
    msg = f"{folder} has {there} already, which stays as it is: name another folder, or give overwrite=True (freshet "
    raise ExportError(msg + "model import: --overwrite) to replace it")

"""NaN and infinity in a module: in its weights, and in what it gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import Module

from freshet.gnn.pyg.errors import RECORDED, WEIGHTS, ExportError

_SHOWN = 4


def refuse_weights(module: Module, weights: dict[str, np.ndarray]) -> None:
    """Refuse what was made of a module where a weight in it is NaN, infinite or past float32.

    Raises: ExportError naming the parameters and buffers of the module that are so.
    """
    made = [name for name, value in weights.items() if not np.isfinite(value).all()]
    if made:
        raise ExportError(why_not_finite(module) or _made_so(made)).of(WEIGHTS)


@contextmanager
def naming_weights(module: Module) -> Iterator[None]:
    """Add to an error about a number that is not finite the names of the module's weights that are not."""
    try:
        yield
    except ExportError as error:
        reason = why_not_finite(module) if "finite number" in str(error) else None
        if reason is None:
            raise
        raise ExportError(reason).of(WEIGHTS) from error


def why_not_finite(module: Module) -> str | None:
    """Return which parameters and buffers of a module are NaN, infinite or past float32; None where none is."""
    found = []
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if torch.nn.parameter.is_lazy(value) or not value.is_floating_point():
            continue
        values = value.detach()
        wrong = int((~torch.isfinite(values.float())).sum())
        if wrong:
            past = bool(torch.isfinite(values).all())
            found.append(f"{name} ({wrong} of {values.numel()} values {'past float32' if past else 'NaN or infinite'})")
    if not found:
        return None
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"weights are NaN, infinite or past float32: {', '.join(found[:_SHOWN])}{more}. Export weights without them"


def _made_so(names: list[str]) -> str:
    return (
        f"{', '.join(names[:_SHOWN])} of the exported model would be NaN or infinite, though no weight of the module "
        "is: a norm with a negative running_var, or a division by 0"
    )


def refuse_rows(clone: Module, made: Any, again: Any) -> None:
    """Refuse a module that gives NaN or infinity itself; `again` runs the clone once more.

    Raises: ExportError naming the first of its parts that does.
    """
    wrong = sum(int((~np.isfinite(rows).all(axis=-1)).sum()) for rows in made if rows is not None)
    if not wrong:
        return
    first: list[str] = []

    def look(name: str) -> Any:
        def hook(part: Any, args: Any, result: Any) -> None:
            rows = getattr(result, "isfinite", None)
            if rows is not None and not first and not bool(rows().all()):
                first.append(f"{name} ({type(part).__name__})")

        return hook

    for name, part in clone.named_modules():
        if name and not any(True for _ in part.children()):
            part.register_forward_hook(look(name))
    again()
    where = f", first in {first[0]}" if first else ""
    msg = f"the module itself gives NaN or infinity on a small graph, in {wrong} rows{where}: weights too large, or a "
    raise ExportError(msg + "function that is not defined there. Mend the module; nothing was written").of(RECORDED)

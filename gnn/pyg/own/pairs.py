"""A module that scores pairs of rows becomes a link head: it is read as it runs, and compared with what was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn import Module

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.layers.link_scores import LinkScores
from freshet.gnn.link_head import LEFT, RIGHT, KindsLinkHead, LinkHead
from freshet.gnn.model import Model, WeightedModel, validated
from freshet.gnn.oracles.own_scale import pair_scores
from freshet.gnn.oracles.scaled import Scaled, exact
from freshet.gnn.pyg.check import TOLERANCE, TOLERANCE_OF_FLOAT64, off, on_one_thread
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.finite import naming_weights, refuse_weights
from freshet.gnn.pyg.forward.places import blamed
from freshet.gnn.pyg.forward.sizes import Supposed
from freshet.gnn.pyg.own.notes import NOTES
from freshet.gnn.pyg.own.program import EndsMaker
from freshet.gnn.pyg.own.recorder import NotedValue, Recorder
from freshet.gnn.pyg.own.sizes import RecordedSizes, lengths_recorded, scripts_refused
from freshet.gnn.pyg.own.values import Value, difference
from freshet.gnn.pyg.running import clone_of
from freshet.gnn.pyg.steps import Weights

Made = TypeVar("Made", bound=Model | KindsModel)
_SIZES = (131, 137, 139, 149, 151, 157)
"""Numbers of pairs: primes, so that no width of a layer is likely to be one."""
_TRIALS = [(size, scale) for size in (1, 2, 13, 300) for scale in (1.0, 0.01, 100.0)]


def link_head_of(head: Any, left: int, right: int, where: str) -> tuple[LinkHead, Weights]:
    """Return the link head that a module is, called as head(left, right), and its weights under `where`.

    The module makes one number of each pair: a tensor (n,) or (n, 1), of rows (n, width).

    Raises: ExportError naming the place of what cannot be read, or the difference on random rows.
    """
    if not isinstance(head, Module):
        refuse(f"{where}: expected a torch.nn.Module, called as head(left, right), got {type(head).__name__}")
    with naming_weights(head):
        taken = {n for one in (*head.parameters(), *head.buffers()) for n in one.shape} | {left, right}
        sizes = [size for size in _SIZES if not any(n and n % size == 0 for n in taken)][:2]
        made, again = (_read(head, (left, right), size, where) for size in sizes)
        if (found := difference(made, again)) is not None:
            msg = f"{where}: {found.place or 'its forward'}: it computes with the number of pairs, or with a value "
            raise ExportError(msg + "that leaves torch; the score of a pair is of its two rows alone")
        maker = EndsMaker()
        try:
            maker.message(made)
            spec = LinkHead.model_validate({"program": maker.steps})
            spec.check(left, right, where)
        except (ExportError, ValueError) as error:
            msg = f"{where}: {type(head).__name__} is not supported: {error}"
            raise ExportError(msg) from error
    weights = {name.replace(maker.prefix, where, 1): one for name, one in maker.weights.items()}
    refuse_weights(head, weights)
    _compare(head, _OfHead(weights=weights), spec, (left, right), where)
    return spec, weights


class _OfHead(WeightedModel):
    """The weights of a head, without its model."""


def _read(head: Module, widths: tuple[int, int], size: int, where: str) -> Value:
    """Return what a module makes of `size` random pairs, as a value of both rows."""
    clone, random = clone_of(head), torch.Generator().manual_seed(size)
    recorder, given = Recorder({"edges": size}, NOTES), list[torch.Tensor]()
    for name, width in zip((LEFT, RIGHT), widths, strict=True):
        rows = torch.randn(size, width, generator=random)
        end = Value("gather", width, "edges", (Value("rows", width, "vertices", name=name),), name=name)
        recorder.note(rows, NotedValue(end, 0))
        given.append(rows)
    sizes = Supposed({"pairs": size})
    try:
        with torch.no_grad(), lengths_recorded(), scripts_refused(sizes), recorder, RecordedSizes(recorder, sizes):
            made = clone(*given)
        if sizes.guards:
            refuse(f"{sizes.guards[0].place}: it branches on the number of pairs; a score is of its two rows alone")
    except ExportError as error:
        msg = f"{where}: {type(head).__name__} is not supported: {error}"
        raise ExportError(msg) from error
    except Exception as error:
        if sizes.refused is not None:
            raise sizes.refused from error
        place, _ = blamed(error)
        about = f"rows of width {widths[0]} and {widths[1]}{' at ' + place if place else ''}"
        msg = f"{where}: {type(head).__name__} fails on {about} ({type(error).__name__}: {error})"
        raise ExportError(msg) from error
    noted = recorder.find(made)
    if noted is None or noted.axis != 0 or noted.value.width != 1 or made.dim() > 2:
        got = f"a tensor of shape {tuple(made.shape)}" if isinstance(made, torch.Tensor) else type(made).__name__
        refuse(
            f"{where}: {type(head).__name__} returns {got} for {size} pairs, expected one number of each pair's two "
            f"rows, ({size},)"
        )
    return noted.value


def _compare(head: Module, weights: _OfHead, spec: LinkHead, widths: tuple[int, int], where: str) -> None:
    """Hold what was read against the module, in float64 and float32, on few and many rows of several sizes.

    Raises: ExportError with the difference.
    """
    ours = LinkScores(weights, spec, where)
    random = np.random.default_rng(0)
    with on_one_thread(), torch.no_grad():
        for size, scale in _TRIALS:
            rows = [(random.standard_normal((size, width)) * scale).astype(np.float32) for width in widths]
            want, in_float64 = (_scaled(weights, spec, rows, where, one) for one in (TOLERANCE, TOLERANCE_OF_FLOAT64))
            about = f"{size} pairs of rows of the size of {scale:g}"
            _judged(where, "a job's scores", ours.of(*rows)[:, None], want, TOLERANCE, about)
            theirs = _called(head, rows, torch.float64, where)
            allowed = TOLERANCE_OF_FLOAT64
            if theirs is None:  # constants of its own in float32
                theirs, in_float64, allowed = _called(head, rows, torch.float32, where), want, TOLERANCE
            assert theirs is not None
            _judged(where, "its scores", theirs, in_float64, allowed, about)


def _called(head: Module, rows: list[np.ndarray], dtype: torch.dtype, where: str) -> np.ndarray | None:
    """Return what the module makes of pairs, (n, 1); None where it cannot be run in float64."""
    try:
        made = clone_of(head).to(dtype)(*(torch.from_numpy(one).to(dtype) for one in rows))
    except Exception as error:
        if dtype == torch.float64:
            return None
        msg = f"{where}: {type(head).__name__} fails on {len(rows[0])} pairs ({type(error).__name__}: {error})"
        raise ExportError(msg) from error
    if made.numel() != len(rows[0]):
        refuse(f"{where}: {type(head).__name__} makes {made.numel()} numbers of {len(rows[0])} pairs")
    found: np.ndarray = made.reshape(-1, 1).double().numpy()
    return found


def _scaled(weights: _OfHead, spec: LinkHead, rows: list[np.ndarray], where: str, tolerance: float) -> Scaled:
    left, right = (exact(one.astype(np.float64)) for one in rows)
    return pair_scores(weights, spec, where, left, right, tolerance=tolerance)


def _judged(where: str, what: str, made: np.ndarray, want: Scaled, allowed: float, about: str) -> None:
    if not (largest := off([made], [want])) <= allowed:
        msg = f"{where}: {what} differ from what was read of it: largest difference {largest:.3g} of what was summed "
        raise ExportError(msg + f"to get a value, allowed {allowed:g}, on {about}. Nothing was written")


def with_link_heads(model: Made, given: Any) -> Made:
    """Return a model with what scores pairs of its embeddings.

    `given` is a module or, by the kinds of its left and its right row, modules of a model with kinds.

    Raises: ExportError naming what cannot be read, or does not fit the model.
    """
    if isinstance(model, KindsModel):
        fields, weights = _by_kinds(model, given)
    elif isinstance(given, Mapping):
        refuse("link_head: got modules by kind, but the module has no kinds of vertices; give one module")
    else:
        head, weights = link_head_of(given, model.out_width, model.out_width, "link_head")
        fields = {"link_head": head}
    kept = {name: getattr(model, name) for name in type(model).model_fields}
    return validated(type(model), kept | fields | {"weights": model.weights | weights})


def _by_kinds(model: KindsModel, given: Any) -> tuple[dict[str, Any], Weights]:
    """Return the field of a model that has the heads, and their weights."""
    widths = model.out_widths
    if not isinstance(given, Mapping):
        if len(widths) > 1:
            first, *_, last = widths
            refuse(f"link_head: the model returns several kinds; name both, as {{({first!r}, {last!r}): module}}")
        given = {(*widths, *widths): given}
    heads, weights = list[KindsLinkHead](), Weights()
    for i, (ends, module) in enumerate(given.items()):
        if not (isinstance(ends, tuple) and len(ends) == 2 and all(one in widths for one in ends)):
            refuse(f"link_head: got {ends!r}, expected a pair of returned kinds, of {', '.join(map(repr, widths))}")
        left, right = ends
        head, found = link_head_of(module, widths[left], widths[right], f"link_heads.{i}")
        heads.append(KindsLinkHead(program=head.program, left=left, right=right))
        weights |= found
    return {"link_heads": heads}, weights

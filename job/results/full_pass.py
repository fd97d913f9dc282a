"""The embeddings of a whole graph by the oracle that `freshet check` is given, and the scale of each value."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np

from freshet.extras import how_to_install
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import ANSWERS_FILE, Model, ModelError
from freshet.gnn.module_answers import ModuleAnswer, convs_of, has_own_messages, read
from freshet.gnn.oracles import kinds as scales_by_kind
from freshet.gnn.oracles import own_scale
from freshet.gnn.oracles.scaled import Scaled
from freshet.job.console import Report, say
from freshet.job.errors import UsageError
from freshet.job.results.compare import compare
from freshet.job.results.plain_graph import PlainGraph
from freshet.job.results.plain_kinds import PlainKindsGraph, with_learned
from freshet.job.units import readable
from freshet.partitioner.reference.graph import GraphArrays, Id
from freshet.partitioner.reference.kinds import KindsArrays
from freshet.schema import Graph
from freshet.state.memory.machine_memory import available_memory

PYG, OWN = "pyg", "own"
_PYG_MESSAGES = 3  # arrays of them at a time: gathered, multiplied, merged
AnyModel: TypeAlias = Model | KindsModel
AnyArrays: TypeAlias = GraphArrays | KindsArrays


def returned_kinds(model: AnyModel) -> list[str]:
    """Return the kinds of the vertices that have embeddings; an empty name where vertices have no kinds."""
    return list(model.out) if isinstance(model, KindsModel) else [""]


def embedded_of(graph: PlainGraph, kind: str) -> int:
    """Return how many vertices of a graph are of a kind."""
    return graph.count_of(kind) if isinstance(graph, PlainKindsGraph) else len(graph)


def arrays_of(graph: PlainGraph) -> AnyArrays:
    """Return a graph as arrays."""
    return graph.kind_arrays() if isinstance(graph, PlainKindsGraph) else graph.arrays()


def sizes_of(arrays: AnyArrays) -> tuple[int, int]:
    """Return the numbers of vertices and edges."""
    if isinstance(arrays, KindsArrays):
        return sum(map(len, arrays.ids.values())), sum(len(one.src) for one in arrays.graph.edges)
    return len(arrays.ids), len(arrays.src)


def ids_of(arrays: AnyArrays, kind: str) -> np.ndarray:
    """Return the ids of the vertices of a kind, in the order of the rows of a full pass."""
    return _as_array(list(arrays.ids[kind]) if isinstance(arrays, KindsArrays) else arrays.ids)


def _as_array(ids: list[Id]) -> np.ndarray:
    return np.array(ids, object if ids and isinstance(ids[0], str) else np.int64)


def refuse_what_is_missing(model: AnyModel, oracle: str | None) -> None:
    """Refuse an oracle that is not there.

    Raises: UsageError.
    """
    if oracle != PYG:
        return
    if has_own_messages(model):
        msg = "--oracle pyg: models with messages of one's own are checked by Freshet's own full pass; take own"
        raise UsageError(msg)
    from freshet.gnn.pyg import oracle as torch_oracle

    if not torch_oracle.available():
        msg = f"--oracle pyg: torch and torch-geometric are not installed; take own, or {how_to_install('torch')}"
        raise UsageError(msg)


def fitting(model: AnyModel, arrays: AnyArrays) -> str:
    """Choose the oracle: PyTorch Geometric needs memory for messages by edge, our own pass does not."""
    if has_own_messages(model):
        return OWN
    widest, (_, edges) = max(max(one.in_channels, one.out_channels) for one in convs_of(model)), sizes_of(arrays)
    needed, free = _PYG_MESSAGES * edges * widest * 8, available_memory()
    if needed <= free // 2:
        from freshet.gnn.pyg import oracle as torch_oracle

        return PYG if torch_oracle.available() else OWN
    if find_spec("torch_geometric") is None:
        return OWN
    say(
        f"PyTorch Geometric would take about {readable(needed)} for the messages of {edges:,} edges, "
        f"{readable(free)} are free: Freshet's own full pass is taken (--oracle pyg has it done all the same)"
    )
    return OWN


def full_pass(
    model: AnyModel, arrays: AnyArrays, oracle: str, tolerance: float, report: Report
) -> Mapping[str, Scaled]:
    """Return the embeddings in float64 by kind, by the oracle, and the scale of each value, which is always our own."""
    if isinstance(model, KindsModel):
        assert isinstance(arrays, KindsArrays)
        arrays = with_learned(model, arrays)
        scaled = scales_by_kind.forward(model, arrays.graph, tolerance=tolerance, report=report)
        return scaled if oracle == OWN else _by_pyg(model, arrays, scaled, report)
    assert isinstance(arrays, GraphArrays)
    return {"": _of_one_kind(model, arrays, oracle, tolerance, report)}


def _by_pyg(
    model: KindsModel, arrays: KindsArrays, scaled: Mapping[str, Scaled], report: Report
) -> Mapping[str, Scaled]:
    """Return the embeddings by PyTorch Geometric, with our own scales."""
    report("PyTorch Geometric")
    from freshet.gnn.pyg.kinds import oracle as torch_oracle

    made = torch_oracle.forward(model, arrays.graph)
    return {kind: Scaled(made[kind], one.scale) for kind, one in scaled.items()}


def _of_one_kind(model: Model, arrays: GraphArrays, oracle: str, tolerance: float, report: Report) -> Scaled:
    if not len(arrays.ids):
        nothing = np.empty((0, model.out_width))
        return Scaled(nothing, nothing)
    given = model, arrays.graph
    scaled = own_scale.forward(*given, tolerance=tolerance, report=report)
    if oracle == OWN:
        return scaled
    report("PyTorch Geometric")
    from freshet.gnn.pyg import oracle as torch_oracle

    return Scaled(torch_oracle.forward(*given, dtype=np.float64)[-1], scaled.scale)


def module_faults(folder: Path, model: AnyModel, tolerance: float) -> tuple[int | None, list[str]]:
    """Return how many answers of its module a model was compared with, and where it makes other rows, in words.

    None for a model without messages of one's own. Stderr has a line about who judges.

    Raises: UsageError for a damaged file.
    """
    if not has_own_messages(model):
        return None, []
    try:
        answers = read(folder)
    except ModelError as error:
        msg = f"--model {error}"
        raise UsageError(msg) from None
    if not answers:
        say(
            f"the model has messages of your own and no {ANSWERS_FILE}: what was read of your module judges itself; "
            "export it once more, and its folder has answers of the module"
        )
        return 0, []
    say(
        f"the model has messages of your own: what was read of your module judges the run, and is held against "
        f"{len(answers)} answers that the module gave at the export"
    )
    return len(answers), [fault for number, one in enumerate(answers) for fault in _of(model, one, number, tolerance)]


def _of(model: AnyModel, answer: ModuleAnswer, number: int, tolerance: float) -> list[str]:
    try:
        made = _made(model, answer, tolerance)
    except (ValueError, IndexError, TypeError):  # rows or edges of other widths and kinds
        return [f"{ANSWERS_FILE}: graph {number} is none of this model's; was the model changed after its export?"]
    faults = []
    for (kind, one), rows in zip(made.items(), answer.rows, strict=True):
        ids = np.arange(len(rows))
        if rows.shape == one.rows.shape:
            found = compare(ids, rows, ids, one.rows, one.scale)
            if found.is_within(tolerance):
                continue
            what = f"a row is off by {found.max_rel_error:.3g}" if not found.mismatched else "rows are not finite"
        else:
            what = f"rows of shape {rows.shape} became {one.rows.shape}"
        of = f" of {kind}" if kind else ""
        where = f"{ANSWERS_FILE}: on graph {number}"
        faults.append(f"{where} the model makes other rows{of} than your module did at the export: {what}")
    return faults


def _made(model: AnyModel, answer: ModuleAnswer, tolerance: float) -> Mapping[str, Scaled]:
    if isinstance(model, KindsModel):
        return scales_by_kind.forward(model, answer.graph, tolerance=tolerance)
    (x,), (edges,) = answer.graph
    return {"": own_scale.forward(model, Graph(x, *edges), tolerance=tolerance)}

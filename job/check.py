"""`freshet check`: recomputes the final graph from scratch and compares the change log with a full pass over it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from gnn import oracle as own_oracle
from gnn.model import Model, ModelError, load_model
from gnn.plan import Plan, compile_plan
from job.change_log_reader import ChangeLogReader, NoChangeLogError, State
from job.compare import Difference, compare
from job.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError
from job.kafka_client import ClientProperties
from job.kafka_input import from_recorded
from job.positions import JOB_FOLDER, Start
from job.replay import Input, final_graph
from job.run_file import read_run
from operators.replay_graph import GraphArrays

PYG, OWN = "pyg", "own"


def check(
    model: Path,
    events: Sequence[str],
    out: Path,
    snapshot: Path | None = None,
    oracle: str | None = None,
    tolerance: float = 1e-4,
    undirected: bool | None = None,
    id_type: str | None = None,
    properties: ClientProperties | None = None,
) -> int:
    """Print one JSON line about how far `out` is from a full pass; 0 when it is within the tolerance, else 1.

    The graph is the one after the last epoch that `out` records, so that a run that was stopped can be checked, too.
    What is not given is as the run had it.

    Raises:
        UsageError: `out` holds no result, or model, snapshot or events are not those of the run.
    """
    out, snapshot = Path(out), None if snapshot is None else Path(snapshot)
    loaded, plan = _model_of_run(Path(model), run := read_run(out))
    reader, epoch = _log_of(out)
    positions = reader.positions()
    given = Input(
        events=list(events),
        snapshot=snapshot,
        in_width=plan.in_width,
        id_kind=id_type or run.get("id_type"),
        edge_types=plan.edge_types or None,
        undirected=bool(run.get("undirected", False)) if undirected is None else undirected,
        forbid_typed_loops=any(layer.skip_loops for layer in plan.layers),
        topics=from_recorded(run.get("topics", [])),
        events_map=run.get("events_map", {}),
        properties=properties or ClientProperties(),
        starts=Start.load(out / JOB_FOLDER).files,
    )
    if snapshot is None and run.get("snapshot"):
        message = f"--snapshot: the run in {out} began with {run['snapshot']}; give it"
        raise UsageError(message)
    graph = final_graph(given, positions, run.get("sources", []), _say).arrays()
    from gnn import torch_oracle

    chosen = oracle or (PYG if torch_oracle.available() else OWN)
    _say(f"{len(graph.ids):,} vertices, {len(graph.src):,} edges after epoch {epoch}; full pass ({chosen})")
    expected = _full_pass(loaded, graph, chosen)
    state = reader.state_at(epoch)
    difference = compare(state.ids, state.vectors, _ids_of(graph), expected)
    print(orjson.dumps(_line(difference, state, epoch, chosen)).decode(), flush=True)
    good = difference.is_within(tolerance) and not state.duplicates
    return EXIT_DONE if good else EXIT_CHECK_FAILED


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _model_of_run(folder: Path, run: dict[str, Any]) -> tuple[Model, Plan]:
    try:
        model = load_model(folder)
    except ModelError as error:
        message = f"--model {folder}: {error}"
        raise UsageError(message) from None
    plan = compile_plan(model)
    recorded = run.get("model_sha256")
    if recorded is not None and recorded != plan.sha256:
        message = f"--model {folder}: SHA-256 {plan.sha256}, the run had {recorded}; give the model of the run"
        raise UsageError(message)
    return model, plan


def _log_of(out: Path) -> tuple[ChangeLogReader, int]:
    try:
        reader = ChangeLogReader(out)
    except NoChangeLogError as error:
        message = f"--out {error}"
        raise UsageError(message) from None
    epoch = reader.last_epoch()
    if epoch is None:
        message = f"--out {out}: no epoch is complete in it yet, so there is nothing to check"
        raise UsageError(message)
    return reader, epoch


def _full_pass(model: Model, graph: GraphArrays, oracle: str) -> np.ndarray:
    from gnn import torch_oracle

    if oracle == PYG and not torch_oracle.available():
        message = "--oracle pyg: torch and torch-geometric are not installed; `make install` does it, or take own"
        raise UsageError(message)
    forward = torch_oracle.forward if oracle == PYG else own_oracle.forward
    if not len(graph.ids):
        return np.empty((0, model.out_width), np.float32)
    return forward(model, graph.x, graph.src, graph.dst, graph.weight)[-1]


def _ids_of(graph: GraphArrays) -> np.ndarray:
    if graph.ids and isinstance(graph.ids[0], str):
        return np.array(graph.ids, object)
    return np.array(graph.ids, np.int64)


def _line(difference: Difference, state: State, epoch: int, oracle: str) -> dict[str, Any]:
    return {
        "vertices": difference.vertices,
        "max_abs_error": difference.max_abs_error,
        "max_rel_error": difference.max_rel_error,
        "missing": difference.missing,
        "extra": difference.extra,
        "nan": difference.nan,
        "mismatched": difference.mismatched,
        "duplicates": state.duplicates,
        "epoch": epoch,
        "oracle": oracle,
    }

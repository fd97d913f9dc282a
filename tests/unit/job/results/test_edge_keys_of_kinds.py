"""Jobs whose vertices have kinds and whose edges have keys: what is exported and gone on with keeps each edge's own."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import save_model
from freshet.job.options.config_file import load_run_config
from freshet.job.results.check import check
from freshet.job.results.export import export
from freshet.job.run import runner
from freshet.operators.sink.change_log_reader import ChangeLogReader
from tests.support.graphs.kind_reference import KindGraph
from tests.support.graphs.kind_streams import embeddings_of, graph_of, random_records
from tests.support.graphs.kinds import text_id
from tests.unit.job.results.test_kinds_jobs import assert_same, kinds_of, of_one_kind, with_attributes


def keyed_records(model: KindsModel, kind: str, id_of: Callable[[int], Any]) -> list[dict[str, Any]]:
    """Random records whose edges have one of three keys or none, the first one a key."""
    rng, found = random.Random(kind), list[dict[str, Any]]()
    for record in random_records(kinds_of(model), 7, 900, id_of):
        if "src" in record:
            number = 1 if not any("src" in one for one in found) else rng.randrange(4)
            every = record["op"] == "del_edge" and rng.random() < 0.2
            key = "*" if every else None if not number else number if kind == "int" else f"payment {number}"
            record = {**record, "key": key}
        found.append(record)
    return found


@pytest.mark.parametrize("kind", ["int", "string"])
@pytest.mark.parametrize(("make", "id_of"), [(with_attributes, text_id), (of_one_kind, int)])
def test_a_job_that_goes_on_from_an_export_has_the_attributes_of_each_edge(
    make: Callable[[], KindsModel], id_of: Callable[[int], Any], kind: str, tmp_path: Path
) -> None:
    """Attributes that the mirror's messages alone read are found by the ends and the key."""
    model = make()
    save_model(model, tmp_path / "model")
    records, snapshot = keyed_records(model, kind, id_of), None
    for number, some in enumerate([records[:700], records[700:]]):
        events, out = tmp_path / f"{number}.jsonl", tmp_path / f"out{number}"
        events.write_bytes(b"\n".join(map(orjson.dumps, some)))
        given: dict[str, Any] = {"model": tmp_path / "model", "events": [str(events)], "out": out, "parts": 2 + number}
        options = {"runtime": "local", "epoch_ms": 0, "epoch_events": 40, "snapshot": snapshot}
        assert runner.run(load_run_config(given | options)) == 0
        assert check(given["model"], given["events"], out, snapshot=snapshot) == 0
        snapshot = tmp_path / f"S{number}"
        export(snapshot, out)
        graph = graph_of(kinds_of(model), records if number else some, KindGraph(kinds_of(model), keyed=True))
        assert len({edge[:3] for edge in graph.edges}) < len(graph.edges)
        (name,) = model.out
        log = ChangeLogReader(out)
        state = log.state_at(log.last_epoch() or 0)
        rows = dict(zip(state.ids.tolist(), state.vectors, strict=True))
        assert_same(rows, embeddings_of(model, graph, name))

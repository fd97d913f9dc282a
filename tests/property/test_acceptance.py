"""What is accepted is a function of the events' order: not of messages, batches, blocks, epochs or restarts."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.letter_box import DeadLetterFile, LetterBox
from freshet.operators.parser.messages import TopicMessage
from freshet.operators.parser.stages import MessageStage
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.schema import Features
from tests.support.kafka.batches import batch_of
from tests.support.malformed.arrow import to_ipc

ORIGIN = Origin(0, "topic")
SCHEMA = pa.schema(
    {"op": pa.string(), "src": pa.int64(), "dst": pa.int64(), "weight": pa.float64(), "type": pa.string()}
    | {"attr": pa.list_(pa.float64()), "id": pa.int64(), "key": pa.int64()}
)

ends = st.integers(0, 3)
keys = st.sampled_from([None, 0, 1, -(2**63)])  # the last is none
names = st.sampled_from([None, "a", "b", "c", "d", ""])
adds = st.fixed_dictionaries(
    {"op": st.just("add_edge"), "src": ends, "dst": ends},
    optional={"type": names, "attr": st.lists(st.just(1.0), max_size=2), "key": keys},
)
deletes = st.fixed_dictionaries(
    {"op": st.just("del_edge"), "src": ends, "dst": ends}, optional={"type": names, "key": keys}
)
records = st.lists(
    st.one_of(adds, adds, adds, deletes, st.fixed_dictionaries({"op": st.just("del_vertex"), "id": ends})),
    min_size=1,
    max_size=60,
)
# how many records a message has, how many messages a batch, and whether it is a table
messages = st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=20)
ways = st.tuples(messages, st.integers(1, 5), st.integers(1, 40), st.booleans())


def batches(stream: list[dict[str, Any]], shapes: list[tuple[int, bool]], together: int) -> list[bytes]:
    found, begin = [], 0
    while begin < len(stream):
        size, table = shapes[len(found) % len(shapes)]
        part = stream[begin : begin + size]
        begin += size
        value = to_ipc(pa.Table.from_pylist(part, SCHEMA)) if table else b"\n".join(map(orjson.dumps, part))
        found.append(TopicMessage(0, len(found), value))
    return [batch_of(found[k : k + together]) for k in range(0, len(found), together)]


def outcome(stream: list[dict[str, Any]], way: Any, edge_keys: str) -> tuple[Any, ...]:
    """The numbers of the rejected records (which are their weights), counts, and the edges at the end."""
    shapes, together, epoch_events, restart = way
    with TemporaryDirectory() as folder:
        letters = LetterBox(DeadLetterFile(Path(folder) / "dead.jsonl"))
        rules = KeyRules("", edge_keys)
        parser = MessageStage(Parser(Features(1), "int", keys=rules), ORIGIN, letters, epoch_events)
        log, entries = CutLog(), dict[str, bytes]()

        def start() -> PartitionerStage:
            core = Partitioner(2, Features(1), PartitionerConfig(types_max=2, edge_keys=edge_keys))
            config = SealingConfig(epoch_events, 0, marker_epochs_max=3)
            stage = PartitionerStage(core, config, log, None, letters, ("topic",), (0,))
            stage.restore(entries.items())
            for one in stage.begin():
                keep(one)
            return stage

        def keep(one: Any) -> None:
            entries.update(one.puts)
            for key in one.deletes:
                entries.pop(key, None)

        stage = start()
        for batch in batches(stream, shapes, together):
            for block in parser.parse(batch):
                keep(stage.receive(block, 0.0))
            if restart:
                stage = start()
        keep(stage.finish())
        graph = stage.core.live_graph()
        ids = graph.ids.to_list()
        columns = graph.src, graph.dst, graph.etype, graph.values.weight
        keyed = [None] * len(graph.src) if graph.edge_keys is None else graph.edge_keys.to_list()
        edges = {
            (ids[src], ids[dst], graph.types[etype], key): weight
            for src, dst, etype, weight, key in zip(*(column.tolist() for column in columns), keyed, strict=True)
        }
        path = Path(folder) / "dead.jsonl"
        lines = [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        raws = [orjson.loads(line["raw"]) for line in lines]
        rejected = sorted(
            (raw["weight"], line["error"]) for raw, line in zip(raws, lines, strict=True) if "weight" in raw
        )
        return rejected, stage.progress.rejected_in_all, stage.accepted - stage.progress.refused, edges, set(ids)


@settings(max_examples=80, deadline=None)
@given(records, ways, ways, st.sampled_from(["", "int"]))
def test_the_same_is_accepted_however_the_stream_is_cut(stream, first, second, edge_keys):
    stream = [record | ({"weight": float(k)} if record["op"] == "add_edge" else {}) for k, record in enumerate(stream)]
    one, other = outcome(stream, first, edge_keys), outcome(stream, second, edge_keys)
    assert one == other

"""Past 16 parts a vertex has a list of parts in place of columns: a Partitioner answers with the same bytes."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshet.state.table
from freshet.files.json_file import DamagedFileError
from freshet.partitioner import graph_tables as t
from freshet.partitioner.config import STRATEGIES, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.schema import Features
from freshet.state.codec import UnknownFormatError, encode
from freshet.state.entry_lists import ORDERS
from freshet.state.image import load_images, write_image
from freshet.state.sweep import Mutations, Sweeper
from freshet.state.task_parts import DENSE_PARTS

CTL = np.zeros(8, np.int64)
HUB = 0


def make(parts: int, strategy: str, *, dense: bool = False) -> Partitioner:
    config = PartitionerConfig(strategy=strategy, hybrid_threshold=3)
    with patch.object(t, "DENSE_PARTS", parts if dense else DENSE_PARTS):
        partitioner = Partitioner(parts, Features(1), config)
    assert partitioner.tables["vertex"].width == (18 + 3 * parts + parts % 2 if dense else t.SPARSE_WIDTH)
    return partitioner


def draw_epoch(rng: np.random.Generator, vertices: int) -> list[tuple]:
    """Many edges of a hub and of few others, so that deletions hit, lists grow and shrink, and slots come back."""

    def vertex() -> int:
        return HUB if rng.random() < 0.2 else int(rng.zipf(1.4)) % vertices

    def event() -> tuple:
        kind = rng.choice(4, p=[0.58, 0.27, 0.05, 0.1])
        if kind == 0:
            return ("add_edge", vertex(), vertex(), float(rng.integers(1, 4)))
        if kind == 1:
            return ("del_edge", vertex(), vertex())
        return ("add_vertex", vertex()) if kind == 2 else ("del_vertex", int(rng.integers(vertices)))

    return [event() for _ in range(rng.integers(1, 90))]


def told(partitioner: Partitioner, rows: list[tuple], epoch: int) -> list[bytes]:
    blocks = partitioner.split(partitioner.partition(events_of(rows)), CTL, epoch)
    return [encode(block.header, block.columns) for block in blocks]


class Durable:
    """What keyed state has of a Partitioner, which passes a marker now and then."""

    def __init__(self, partitioner: Partitioner) -> None:
        self.entries: dict[str, bytes] = {}
        self.sweeper = Sweeper(partitioner.tables, spread_epochs=2)

    def keep(self, changes: dict[int, Mutations]) -> None:
        mutations = changes.get(0, Mutations())
        self.entries.update(mutations.puts)
        for key in mutations.deletes:
            self.entries.pop(key, None)


def free_words(partitioner: Partitioner) -> int:
    """Words in all chains of free chunks."""
    scalars, words, count = partitioner.tables["scalars"].data, partitioner.tables["lists"].data, 0
    for k in range(ORDERS):
        at = int(scalars[t.LIST_FREE + k])
        while at:
            count, at = count + (1 << k), int(words[at - 1])
    return count


def check_lists(partitioner: Partitioner) -> None:
    """The lists are those of the parts where edges live, and all words of the pool are theirs or free."""
    tables, graph = partitioner.tables, partitioner.live_graph()
    vertex, words, held = tables["vertex"].data, tables["lists"].data, 0
    n = len(graph.ids)
    ends = np.zeros((n, partitioner.parts, 2), np.int64)
    np.add.at(ends, (graph.dst, graph.part, 0), 1)
    np.add.at(ends, (graph.src, graph.part, 1), 1)
    rows = np.flatnonzero(vertex[:, t.LIVE])
    for k, row in enumerate(rows.tolist()):
        at, count, order = vertex[row, t.LIST : t.LIST + 3].tolist()
        entries = words[at : at + 4 * count].reshape(count, 4)
        held += 1 << order if order else 0
        away = [part for part in np.flatnonzero(ends[k].any(axis=1)).tolist() if part != graph.master[k]]
        assert entries[:, 0].tolist() == away
        assert entries[:, 2:].tolist() == ends[k, away].tolist()
        assert vertex[row, t.SLOTS + 1 : t.SLOTS + 3].tolist() == ends[k, graph.master[k]].tolist()
        assert (entries[:, 1] >= 0).all() and vertex[row, t.SLOTS] == graph.slot[k]
    assert held + free_words(partitioner) == tables["scalars"].data[t.LIST_TAIL]


@settings(max_examples=40)
@given(
    st.sampled_from([DENSE_PARTS + 1, 24, 64]),
    st.sampled_from(STRATEGIES),
    st.integers(2, 60),
    st.integers(0, 1 << 30),
)
def test_lists_answer_as_columns_do(parts: int, strategy: str, vertices: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with patch.object(freshet.state.table, "PAGE_BYTES", 64):  # a change that is not announced hides behind no other
        columns, lists = make(parts, strategy, dense=True), make(parts, strategy)
        durable, since = Durable(lists), list[list[tuple]]()
        for epoch in range(int(rng.integers(2, 25))):
            rows = draw_epoch(rng, vertices)
            assert told(lists, rows, epoch) == told(columns, rows, epoch), f"epoch {epoch}"
            since.append(rows)
            durable.keep(durable.sweeper.step())
            if rng.random() < 0.3:
                durable.keep(durable.sweeper.mark(epoch))
            if rng.random() < 0.1 and durable.sweeper.marker > 1:
                lists = make(parts, strategy)
                entries, durable = durable.entries, Durable(lists)
                durable.entries = entries
                stands_at = durable.sweeper.restore(entries.items())
                lists.after_restore()
                for again in range(stands_at + 1, epoch + 1):
                    told(lists, since[again], again)
        check_lists(lists)
        assert lists.stats() == columns.stats()
        dead = [("del_vertex", vertex) for vertex in range(vertices)]
        assert told(lists, dead, 99) == told(columns, dead, 99)
        assert free_words(lists) == lists.tables["scalars"].data[t.LIST_TAIL], "no chunk is lost"


def test_a_state_with_columns_is_refused_with_the_way_out(tmp_path: Path) -> None:
    columns = make(64, "hybrid", dense=True)
    durable = Durable(columns)
    write_image(columns.tables, tmp_path, 0)
    for epoch in (1, 2):
        told(columns, [("add_edge", epoch, 7)], epoch)
        durable.keep(durable.sweeper.mark(epoch))
    with pytest.raises(UnknownFormatError, match=r"more than 16\)\. Resume with the version .* or `freshet export`"):
        Sweeper(make(64, "hybrid").tables).restore(durable.entries.items())
    with pytest.raises(DamagedFileError, match=r"more than 16\)\. Resume with the version .* or `freshet export`"):
        load_images(make(64, "hybrid").tables, {0: tmp_path})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lists_grow_amid_a_large_epoch(strategy: str) -> None:
    """A snapshot brings far more entries than the pool has room for at first."""
    rng = np.random.default_rng(5)
    edges = [("add_edge", int(a), int(b)) for a, b in rng.integers(0, 700, (12_000, 2)) if a != b]
    columns, lists = make(64, strategy, dense=True), make(64, strategy)
    assert told(lists, edges, 0) == told(columns, edges, 0)
    check_lists(lists)
    assert lists.tables["scalars"].data[t.LIST_TAIL] > 10_000

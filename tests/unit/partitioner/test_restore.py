"""A Partitioner restored from its pages answers with the same bytes, wherever the pages were taken."""

import numpy as np
import pytest

import freshet.state.table
from freshet.partitioner.config import STRATEGIES, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.schema import Features
from freshet.state.codec import encode
from freshet.state.sweep import Mutations, Sweeper

CTL = np.zeros(8, np.int64)
VERTICES, EPOCHS, EVENTS = 120, 30, 40


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    """Pages of 16 rows, so that a change that is not announced does not hide behind one that is."""
    monkeypatch.setattr(freshet.state.table, "PAGE_BYTES", 64)


def random_epochs(seed: int, strings: bool) -> list[list[tuple]]:
    rng = np.random.default_rng(seed)

    def vertex():
        number = int(rng.zipf(1.6)) % VERTICES
        return f"v{number}" * (1 + number % 7) if strings else number * 1_000_003

    def event():
        kind = rng.choice(5, p=[0.5, 0.22, 0.08, 0.1, 0.1])
        if kind == 0:
            return ("add_edge", vertex(), vertex(), float(rng.integers(1, 4)), str(rng.choice(["", "t", "ü"])))
        if kind == 1:
            return ("del_edge", vertex(), vertex())
        if kind == 2:
            return ("add_vertex", vertex(), [float(rng.integers(9))])
        return ("set_features", vertex(), [1.0]) if kind == 3 else ("del_vertex", vertex())

    return [[event() for _ in range(EVENTS)] for _ in range(EPOCHS)]


def run(partitioner: Partitioner, rows: list[tuple], epoch: int) -> list[bytes]:
    kind = partitioner.config.id_kind
    blocks = partitioner.split(partitioner.partition(events_of(rows, Features(1), kind)), CTL, epoch)
    return [encode(block.header, block.columns) for block in blocks]


def make(parts: int, strategy: str, strings: bool) -> Partitioner:
    kind = "string" if strings else "int"
    return Partitioner(
        parts, Features(1), PartitionerConfig(strategy=strategy, id_kind=kind, hybrid_threshold=3, key_bits=6)
    )


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(3))
def test_sweep_restore_and_replay_give_the_same_blocks(strategy, strings, seed):
    parts = 1 + seed
    epochs = random_epochs(seed, strings)
    original, state_map = make(parts, strategy, strings), {}
    sweeper = Sweeper(original.tables, spread_epochs=3)

    def keep(changes):
        mutations = changes.get(0, Mutations())
        state_map.update(mutations.puts)
        for key in mutations.deletes:
            state_map.pop(key, None)

    blocks = []
    for epoch, rows in enumerate(epochs):
        blocks.append(run(original, rows, epoch))
        keep(sweeper.step())
        if epoch % 5 == 4:
            keep(sweeper.mark(epoch))

    restored = make(parts, strategy, strings)
    at = Sweeper(restored.tables).restore(state_map.items())
    restored.after_restore()
    assert 0 < at < EPOCHS - 5
    for epoch in range(at + 1, EPOCHS):
        assert run(restored, epochs[epoch], epoch) == blocks[epoch]
    assert restored.tables["scalars"].data.tolist() == original.tables["scalars"].data.tolist()
    assert restored.stats() == original.stats()


def images(partitioner: Partitioner) -> dict[tuple[str, int], bytes]:
    return {
        (table.name, page): table.data[page * table.page_rows : (page + 1) * table.page_rows].tobytes()
        for table in partitioner.tables
        for page in range(table.data.shape[0] // table.page_rows)
    }


@pytest.mark.parametrize("strings", [False, True])
def test_every_changed_page_is_announced(strings):
    """Stronger than a restore: between two markers no page changes that the next marker would not be owed."""
    partitioner = make(3, "hybrid", strings)
    rows = [row for epoch in random_epochs(9, strings) for row in epoch if row[0] != "del_vertex"]
    rng = np.random.default_rng(1)
    edges = [row for row in rows if row[0] == "add_edge"]
    single = [("del_edge", *edge[1:3], edge[4]) for edge in edges[::3]]
    single += [(*edge[:3], float(rng.integers(9)), edge[4]) for edge in edges[1::3]]
    single += [("del_vertex", row[1]) for row in rows[::40]] + rows[::20]
    single = [single[k] for k in rng.permutation(len(single))]
    before = images(partitioner)
    for table in partitioner.tables:
        list(table.take_owed(table.freeze()))
    changes = 0
    for epoch, events in enumerate([rows, *([tuple(row)] for row in single)]):
        run(partitioner, events, epoch)
        after = images(partitioner)
        announced = {(t.name, page) for t in partitioner.tables for page, _ in t.take_owed(t.freeze())}
        blank = {t.name: np.full((t.page_rows, t.width or 1), t.fill, t.dtype).tobytes() for t in partitioner.tables}
        changed = {page for page, image in after.items() if image != before.get(page, blank[page[0]])}
        assert changed <= announced, (events[0], changed - announced)
        changes += len(changed)
        before = after
    assert changes > len(single)

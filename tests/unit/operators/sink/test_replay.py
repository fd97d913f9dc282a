"""A story with random epochs: markers every 7 epochs, births, deaths; and any crash and replay of it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.operators.stage import Stage
from freshet.state.codec import encode
from tests.support.stages.sunk import block, control, digest, log_of, rows_in, sink_of


def story(epochs, kind, seed=3):
    rng = np.random.default_rng(seed)
    live, blocks = set(), {}
    for epoch in range(epochs + 1):
        dead = [key for key in sorted(live) if rng.random() < 0.1]
        live -= set(dead)
        born = [
            int(key) for key in np.unique(rng.integers(0, 60, 6 if epoch else 0)) if key not in live and key not in dead
        ]
        changed = [key for key in sorted(live) if rng.random() < 0.3] + born
        live |= set(born)
        marker = epoch // 7 if epoch and epoch % 7 == 0 else -1
        names = {key: f"name {key}" for key in born} if kind == "string" else None
        flags = 2 if epoch == epochs else 0
        blocks[epoch] = block(
            epoch, changed, dead, control(marker=marker, arrival=epoch, flags=flags), names, [(0, 0, 5 * epoch, 5)]
        )
    return blocks


def encoded(block_):
    return encode(block_.header, block_.columns)


class Life:
    """A sink in its stage, with the keyed state that survives it."""

    def __init__(self, out, kind):
        self.out, self.kind, self.entries = out, kind, {}

    def start(self):
        self.sink = sink_of(self.out, kind=self.kind, rows=40, group_rows=12)
        self.stage = Stage("sink", self.sink, 1)
        self.stage.restore(self.checkpoint.items() if hasattr(self, "checkpoint") else ())
        return self.stage.epoch + 1

    def act(self, data):
        outcome = self.stage.act(self.stage.offer(encoded(data)))
        self.entries |= dict(outcome.puts)
        for key in outcome.deletes:
            self.entries.pop(key, None)

    def take_checkpoint(self):
        self.checkpoint = dict(self.entries)

    def restore(self):
        self.entries = dict(self.checkpoint)
        return self.start()


@pytest.mark.parametrize("kind", ["int", "string"])
def test_any_crash_and_replay_gives_the_same_files(tmp_path, kind):
    blocks = story(45, kind)
    plain = Life(tmp_path / "plain", kind)
    begin = plain.start()
    for epoch in range(begin, 46):
        plain.act(blocks[epoch])
    plain.sink.close()
    expected = digest(tmp_path / "plain")
    assert len(expected) > 10

    for stop_at in range(8, 45, 4):  # every way at several epochs
        out = tmp_path / f"stop-{stop_at}"
        life = Life(out, kind)
        life.start()
        for epoch in range(begin, stop_at + 1):
            life.act(blocks[epoch])
            if epoch == stop_at - 2:
                life.take_checkpoint()
        # Stopped in one of three ways: killed, failed, or stopped with its last rows written.
        if stop_at % 3 == 0:
            log_of(life.sink).writer.wait()
        else:
            life.sink.close(write=stop_at % 3 == 1)
        visible = {name: pq.read_table(next(out.glob(f"*/{name}"))) for name in digest(out)}
        first = life.restore()
        assert first <= stop_at - 1
        for epoch in range(first, 46):
            life.act(blocks[epoch])
            for name, table in visible.items():  # what was seen is seen for good
                path = next(out.glob(f"*/{name}"))
                assert pq.read_table(pa.BufferReader(path.read_bytes())).slice(0, table.num_rows).equals(table), (
                    stop_at,
                    epoch,
                    name,
                )
        life.sink.close()
        assert digest(out) == expected
        assert (
            json.loads((out / "status/sink-0.json").read_text())["rows"]
            == json.loads((tmp_path / "plain/status/sink-0.json").read_text())["rows"]
        )


def test_a_replay_that_is_stopped_early_does_not_take_back_what_was_seen(tmp_path):
    sink = sink_of(tmp_path, rows=4)
    for epoch in (1, 2):
        sink.apply(epoch, [block(epoch, [1, 2], control=control())])
    sink.close()
    assert len(rows_in(tmp_path / "embeddings/part-0-00000000.parquet")) == 4
    replay = sink_of(tmp_path, rows=4)
    replay.apply(1, [block(1, [1, 2], control=control(flags=1))])
    replay.close()
    assert len(rows_in(tmp_path / "embeddings/part-0-00000000.parquet")) == 4
    assert pq.read_table(tmp_path / "epochs/epochs-00000000.parquet").num_rows == 2

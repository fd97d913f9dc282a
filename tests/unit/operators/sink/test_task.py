"""The Sink of a task with several parts: what each of them writes is what a Sink of that part alone would write."""

import numpy as np
import pytest

from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.core import Sink
from freshet.operators.sink.dealing import BadEpochError, deal
from freshet.operators.sink.kafka_records import RecordBlocks
from freshet.operators.sink.kind_outputs import KindOutputs
from freshet.operators.sink.log_output import LogOutput
from freshet.operators.sink.outlet import Outlet, OutletStage
from freshet.operators.sink.task import TaskSink, of_task
from freshet.state.block_columns import ROWS
from freshet.state.codec import Block, Header, decode, encode
from tests.support.stages.sunk import SOURCES, WIDTH, block, control, digest, rows_in, sink_of

PARTS = 3


def bundled(epoch, parts, gap=0, source=0, **options):
    """A block for the task of parts 0, 1, ..., each given its changed and its deleted keys; `gap` rows between them."""
    rows, dead, places, gone = [], [], [], []
    for changed, died in parts:
        rows += [99] * gap
        places.append((len(rows), len(rows) + len(changed)))
        gone.append((len(dead), len(dead) + len(died)))
        rows, dead = rows + changed, dead + died
    made = block(epoch, rows, dead, source=source, **options)
    columns = dict(made.columns)
    for name, spans in (("key", places), ("del_key", gone)):
        if name in columns:
            columns[f"{name}_begin"], columns[f"{name}_end"] = np.array(spans, np.int64).T.copy()
    return Block(made.header, columns)


def task_of(out, **options):
    return of_task([sink_of(out, part, **options) for part in range(PARTS)], PARTS)


def test_a_task_of_one_part_is_its_sink(tmp_path):
    sink = sink_of(tmp_path)
    assert of_task([sink], 5) is sink
    sink.close()


@pytest.mark.parametrize("gap", [0, 2])
def test_every_part_writes_what_it_would_write_alone(tmp_path, gap):
    epochs = [
        ([([3, 0], []), ([1], []), ([2, 5], [])], [([6], []), ([], []), ([8], [])]),
        ([([], [3]), ([], []), ([2], [])], [([3], []), ([4], [1]), ([], [5])]),
        ([([], []), ([], []), ([], [])], [([], []), ([], []), ([], [])]),
    ]
    task, alone = task_of(tmp_path / "task"), [sink_of(tmp_path / "alone", part) for part in range(PARTS)]
    positions = [(0, 0, 7, 2)]
    for epoch, (storage, tail) in enumerate(epochs, 1):
        told = {"control": control(), "positions": positions}
        task.apply(epoch, [bundled(epoch, storage, gap, **told), bundled(epoch, tail, gap, source=1)])
        for part, sink in enumerate(alone):
            mine = told if part == 0 else {"control": control()}
            sink.apply(epoch, [block(epoch, *storage[part], **mine), block(epoch, *tail[part], source=1)])
    task.close()
    for sink in alone:
        sink.close()
    assert digest(tmp_path / "task") == digest(tmp_path / "alone") != {}
    assert [row[:2] for row in rows_in(tmp_path / "task/embeddings/part-1-00000000.parquet")] == [
        (1, 1),
        (4, 2),
        (1, 2),
    ]


def test_string_ids_go_to_their_parts(tmp_path):
    task = task_of(tmp_path, kind="string")
    names = {4: "four", 6: "six", 2: "two"}
    task.apply(1, [bundled(1, [([6], []), ([4], []), ([2], [])], control=control(), names=names)])
    task.apply(2, [bundled(2, [([], [6]), ([], []), ([2], [])], control=control())])
    task.close()
    seen = [[row[0] for row in rows_in(tmp_path / f"embeddings/part-{part}-00000000.parquet")] for part in range(PARTS)]
    assert seen == [["six", "six"], ["four"], ["two", "two"]]


@pytest.mark.parametrize(
    "blocks",
    [
        [bundled(1, [([3], []), ([1], []), ([], [])]), bundled(1, [([], []), ([7, 1], []), ([], [])], source=1)],
        [bundled(1, [([], [3]), ([], []), ([], [])]), bundled(1, [([], [6, 3]), ([], []), ([], [])], source=1)],
    ],
)
def test_a_key_that_comes_twice_is_an_error(blocks):
    with pytest.raises(BadEpochError, match=r"sinks: key [13] comes twice in epoch 1"):
        deal("sinks", 1, blocks, WIDTH, PARTS)


def test_what_is_dealt_is_ordered_by_block_and_the_revived_are_not_dead():
    blocks = [bundled(1, [([3], [0]), ([], [7]), ([], [])]), bundled(1, [([0], [6]), ([], []), ([], [])], source=1)]
    found = deal("sinks", 1, [decode(encode(one.header, one.columns)) for one in blocks], WIDTH, PARTS)
    assert [(one.keys.tolist(), one.changed, one.dead) for one in found] == [([3, 0, 6], 2, 1), ([7], 0, 1), ([], 0, 0)]
    assert np.concatenate(found[0].rows)[:, 0].tolist() == [3, 0]
    assert deal("sinks", 1, [], WIDTH, PARTS)[2].keys.size == 0


def test_tables_are_restored_part_by_part_and_levels_are_of_all(tmp_path):
    task = task_of(tmp_path)
    assert isinstance(task, TaskSink)
    task.apply(1, [bundled(1, [([3], []), ([1, 4], []), ([], [])], control=control())])
    assert task.levels["rows_bytes"].now == 3 * (4 * WIDTH + 16) == task.levels["rows_bytes"].as_dict()["now"]
    task.apply(2, [bundled(2, [([], []), ([1], []), ([], [])], control=control(marker=1))])
    sweeper = task.sweeper(None, 0)
    states = [dict(changes.puts) for _, changes in sorted(sweeper.mark(2).items())]
    for _ in range(300):
        for part, changes in sweeper.step().items():
            states[part].update(changes.puts)
    for part, changes in sweeper.mark(3).items():
        states[part].update(changes.puts)
    task.close()
    again = task_of(tmp_path)
    assert again.sweeper(None, 0).restore(*(state.items() for state in states)) == 2
    assert [sink.status(0.0)["rows"] for sink in again.sinks] == [1, 3, 0]
    assert again.nbytes == sum(again.tables_of(part)[0].nbytes for part in range(PARTS))
    again.close(write=False)


def test_a_part_that_can_not_be_closed_leaves_the_others_closed(tmp_path):
    task = task_of(tmp_path)
    task.apply(1, [bundled(1, [([3], []), ([1], []), ([2], [])], control=control())])
    close = task.sinks[1].close
    task.sinks[1].close = lambda write: (close(write), 1 / 0)
    with pytest.raises(ZeroDivisionError):
        task.close()
    assert len(digest(tmp_path)) == 4, "a file for each part, and that of the epochs"


def test_each_part_keeps_how_far_it_has_handed_over(tmp_path):
    sinks = [
        sink_of(tmp_path, part, topic=Outlet(part, WIDTH, "int", RecordBlocks("m", "list"))) for part in range(PARTS)
    ]
    stage = OutletStage("sink-0", of_task(sinks, PARTS), 1, parts=range(4, 4 + PARTS))
    stage.restore([], [("flushed", b"1")], [])
    outcome = stage.act([bundled(1, [([3], []), ([1], []), ([], [])], control=control(flags=4))])
    flushed = {part: dict(changes.puts).get("flushed") for part, changes in outcome.mutations.items()}
    assert flushed == {4: b"1", 5: None, 6: b"1"}, "that of the second one is where it was"
    assert [message.task for message in outcome.messages] == [0]
    stage.close()


@pytest.mark.parametrize("parts", [1, 2])
def test_kinds_with_the_same_ids_are_kept_apart(tmp_path, parts):
    def outputs(part, kind, prefix):
        log = LogOutput(ChangeLog(LogFolders(tmp_path, kind), part, WIDTH, "string", SOURCES))
        topic = Outlet(part, WIDTH, "string", RecordBlocks("m", "list"), kind=kind)
        return KindOutputs(WIDTH, [log, topic], prefix)

    def of_kinds(epoch, of_all, **by_kind):
        columns = dict(of_all)
        for kind, changes in by_kind.items():
            section = bundled(epoch, changes) if parts > 1 else block(epoch, *changes[0])
            names = {key: f"{kind} {key}" for keys, _ in changes for key in keys} if epoch == 1 else {}
            columns |= {f"{kind}.{name}": column for name, column in section.columns.items()}
            named = block(epoch, names=names).columns if names else {}
            columns |= {f"{kind}.{name}": named[name] for name in ("m_key", "m_off", "m_name") if name in named}
        return Block(Header(ROWS, epoch, 2, 0), columns)

    def shown(kind):
        paths = sorted((tmp_path / "embeddings" / kind).iterdir())
        return [(id_, epoch, deleted) for path in paths for id_, epoch, _, deleted in rows_in(path)]

    kinds = {"k0": "user", "k2": "item"}
    sinks = [
        Sink(part, tmp_path, [outputs(part, kind, f"{name}.") for name, kind in kinds.items()], "string")
        for part in range(parts)
    ]
    stage = OutletStage("sink-0", of_task(sinks, parts), 1, parts=range(parts))
    stage.restore([("k2.flushed", b"1")], *[[]] * (parts - 1))
    first = [([2], []), ([], [])][:parts]
    outcome = stage.act([of_kinds(1, {"ctl": control(flags=4)}, k0=first, k2=first)])
    flushed = {name: value for name, value in outcome.of(0).puts if name.endswith("flushed")}
    assert flushed == {"k0.flushed": b"1"}, "the records of the other kind were handed over before"
    assert [message.to for message in outcome.messages] == ["outlet.user"]
    outcome = stage.act([of_kinds(2, {"ctl": control(flags=6)}, k2=[([], [2]), ([], [])][:parts])])
    assert [message.to for message in outcome.messages] == ["outlet.item"]
    stage.close()
    assert shown("user") == [("k0 2", 1, False)]
    assert shown("item") == [("k2 2", 1, False), ("k2 2", 2, True)]
    assert sum(sink.status(0.0)["rows"] for sink in sinks) == 3
    assert sorted(path.name for path in (tmp_path / "epochs").iterdir()) == ["item", "user"]


def test_one_sender_deals_as_several_do():
    header, rng = Header(ROWS, 1), np.random.default_rng(3)
    for size in (1, 2, 5, 64):
        keys, rows = rng.permutation(size * 3)[:size].astype(np.int64), rng.standard_normal((size, 2), np.float32)
        (one,) = deal("sink", 1, [Block(header, {"key": keys, "row": rows})], 2, 1)
        halves = [slice(0, size // 2), slice(size // 2, size)]
        (other,) = deal("sink", 1, [Block(header, {"key": keys[at], "row": rows[at]}) for at in halves], 2, 1)
        assert one.keys.tolist() == other.keys.tolist() == keys.tolist()
        assert (one.changed, one.dead) == (other.changed, other.dead) == (size, 0)
        assert np.concatenate(one.rows).tobytes() == np.concatenate(other.rows).tobytes() == rows.tobytes()
    for keys in ([4, 4], [1, 2, 3, 1]):
        twice = Block(header, {"key": np.array(keys), "row": np.zeros((len(keys), 2), np.float32)})
        with pytest.raises(BadEpochError, match=f"key {keys[-1]} comes twice in epoch 1"):
            deal("sink", 1, [twice], 2, 1)

"""The last change of each vertex in an interval."""

import numpy as np

from freshet.operators.sink.coalesce import Coalescer, TextIds
from freshet.operators.sink.epoch_rows import ID_BYTES, EpochRows


def epoch(number, changed, dead=(), texts=None):
    """changed: {key: value of the row}; texts: the id of each key, for string ids."""
    keys = np.array([*changed, *dead], np.int64)
    rows = [np.array([[value, number] for value in changed.values()], np.float32).reshape(-1, 2)]
    ids = [keys]
    if texts is not None:
        words = [texts[key].encode() for key in keys.tolist()]
        offsets = np.cumsum([0, *map(len, words)]).astype(np.int32)
        ids = [(offsets, np.frombuffer(b"".join(words), np.uint8))]
    return keys, EpochRows(number, ids, rows, len(changed), len(dead))


def taken(coalescer):
    changes = coalescer.take()
    ids = changes.ids
    if isinstance(ids, TextIds):
        data = ids.data.tobytes()
        ids = [data[a:b].decode() for a, b in zip(ids.offsets[:-1], ids.offsets[1:], strict=True)]
    else:
        ids = ids.tolist()
    rows = [None if gone else row[0] for gone, row in zip(changes.deleted, changes.rows.tolist(), strict=True)]
    return list(zip(ids, changes.epochs.tolist(), rows, strict=True))


def test_the_last_change_of_each_vertex():
    coalescer = Coalescer(2, "int")
    coalescer.add(*epoch(1, {7: 1.0, 9: 2.0}))
    coalescer.add(*epoch(2, {}))
    coalescer.add(*epoch(3, {9: 3.0}, dead=[7]))
    coalescer.add(*epoch(4, {5: 4.0}, dead=[8]))
    assert coalescer.bytes_held == 6 * ID_BYTES + 4 * 2 * 4, "of six rows four have vectors"
    assert taken(coalescer) == [(9, 3, 3.0), (7, 3, None), (5, 4, 4.0), (8, 4, None)]
    assert coalescer.bytes_held == 0
    assert taken(coalescer) == []


def test_a_vertex_that_comes_back():
    coalescer = Coalescer(2, "int")
    coalescer.add(*epoch(1, {}, dead=[7]))
    coalescer.add(*epoch(2, {7: 5.0}))
    assert taken(coalescer) == [(7, 2, 5.0)]


def test_string_ids_of_which_two_have_one_key_in_turn():
    coalescer = Coalescer(2, "string")
    coalescer.add(*epoch(1, {7: 1.0, 8: 2.0}, texts={7: "first", 8: "é"}))
    coalescer.add(*epoch(2, {}, dead=[7], texts={7: "first"}))
    coalescer.add(*epoch(3, {7: 3.0}, texts={7: "second"}))
    assert taken(coalescer) == [("é", 1, 2.0), ("first", 2, None), ("second", 3, 3.0)]


def test_clear_forgets():
    coalescer = Coalescer(2, "int")
    coalescer.add(*epoch(1, {7: 1.0}))
    coalescer.clear()
    assert taken(coalescer) == []

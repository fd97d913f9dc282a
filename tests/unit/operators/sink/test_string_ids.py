import itertools

import numpy as np
import pytest

from freshet.operators.sink.string_ids import Names, UnknownKeyError
from freshet.state.sweep import Sweeper
from freshet.state.table import TableSet


def packed(texts):
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0] + [len(text) for text in encoded])
    return offsets.astype(np.int64), np.frombuffer(b"".join(encoded), np.uint8)


def put(names, entries):
    names.put(np.array(list(entries), np.int64), *packed(entries.values()))


def texts_of(names, keys):
    found = []
    for offsets, data in names.of(np.array(keys, np.int64)):
        found += [data[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets)]
    return found


def test_ids_come_back_in_the_order_asked():
    names = Names(TableSet())
    put(names, {5: "anna", -7: "", 2**62: "zoë" * 50})
    assert texts_of(names, [2**62, 5, -7, 5]) == ["zoë" * 50, "anna", "", "anna"]
    assert len(names) == 3


def test_unknown_keys_are_errors():
    names = Names(TableSet())
    put(names, {5: "anna"})
    with pytest.raises(UnknownKeyError, match="key 6"):
        names.of(np.array([5, 6]))
    with pytest.raises(UnknownKeyError, match="key 6 is deleted"):
        names.remove(np.array([6]))


def test_a_key_set_again_gets_the_new_id():
    names = Names(TableSet())
    put(names, {5: "anna"})
    put(names, {5: "a much longer id than before"})
    assert texts_of(names, [5]) == ["a much longer id than before"]
    assert len(names) == 1


def test_random_changes_against_a_dict_and_across_restores():
    rng = np.random.default_rng(7)
    tables, model, previous = TableSet(), {}, {}
    names, sweeper, entries = Names(tables), Sweeper(tables), {}
    for step in range(60):
        dead = [key for key in model if rng.random() < 0.3]
        names.remove(np.array(dead, np.int64))
        for key in dead:
            del model[key]
        born = {
            int(k): "n" * int(rng.integers(0, 40)) + str(k) for k in rng.integers(-3000, 3000, 150) if k not in model
        }
        put(names, born)
        model |= born
        assert texts_of(names, list(model)) == list(model.values())
        assert len(names) == len(model) > 0
        outcome = sweeper.mark(step + 1)[0]  # the mark also writes all that the one before owes
        for key, value in outcome.puts:
            entries[key] = value
        for key in outcome.deletes:
            entries.pop(key, None)
        if step % 10 == 9:  # the cut before this marker is complete: nothing has changed since in this test
            tables = TableSet()
            names = Names(tables)
            kept, sweeper = model, Sweeper(tables)
            sweeper.restore(entries.items())
            model = previous
            assert texts_of(names, list(model)) == list(model.values())
            assert kept != previous
        previous = dict(model)


def test_the_heap_follows_the_live_ids_and_not_the_changes():
    tables = TableSet()
    names = Names(tables)
    keys = np.arange(1000)
    for turn in range(30):
        put(names, {int(key): f"{key + turn:020d}" for key in keys})
        names.remove(keys)
    assert tables["names.heap"].rows < 3 * 32 * 1000 + 32 * 1000
    assert len(names) == 0

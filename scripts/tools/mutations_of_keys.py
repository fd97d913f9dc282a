"""Mutations of what tells parallel edges apart, for scripts/tools/mutate.py: name, file, old text, new text, tests."""

from __future__ import annotations

_KEYS, _DELETIONS, _NETTING = "partitioner/edge_keys.py", "partitioner/deletions.py", "partitioner/netting.py"
_DEGREES, _LISTS = "partitioner/degrees.py", "state/adjacency.py"
_TESTS = "tests/unit/partitioner/test_edge_keys.py"
_RESTORED, _LONG = f"{_TESTS} -k restore", f"{_TESTS} -k longer"
_DURABLE, _TEXTS = f"{_TESTS} -k durable", f"{_TESTS} -k texts"
_ROOM = f"{_TESTS} -k room_in_the_log"
_KINDS = "tests/unit/partitioner/test_kinds.py -k build_the_graph"
_TAGGED = "tests/unit/state/test_tagged_lists.py"

OF_KEYS = [
    (
        "keys of one hash are one",
        _KEYS,
        "                if _has_key(g, row, keys, i):",
        "                if True:",
        _LONG,
    ),
    (
        "the list of parallel edges is linked one way",
        _KEYS,
        "            keys[following, t.PAIR_PREV] = row\n",
        "            pass\n",
        _LONG,
    ),
    ("links of parallel edges are not durable", _KEYS, "        touch(g.keys, before)\n", "", _DURABLE),
    (
        "the index of pairs keeps an edge that went",
        _KEYS,
        "        replace(index.pairs, _pair_hash(index, g, row), row, following)\n",
        "        pass\n",
        _LONG,
    ),
    ("the text of a key that went is kept", _KEYS, "        drop_text(g.scalars,", "        (g.scalars,", _TEXTS),
    ("a restored list has no first edge", _KEYS, "g.keys.data[row, t.PAIR_PREV] < 0:", "False:", _RESTORED),
    ("an edge that goes stays among its parallel ones", _DELETIONS, "    unlink_parallel(index, g, row)\n", "", _LONG),
    (
        "the mirrors of all keys are not counted",
        _DELETIONS,
        "for way in range(ways if g.key_kind and",
        "for way in range(1 if g.key_kind and",
        _ROOM,
    ),
    ("all keys need the room of one", _NETTING, "g.scalars[t.VERTEX_ROWS], count + 1):", "1, 1):", _ROOM),
    (
        "a self-loop with another key is taken",
        _NETTING,
        "        if one_loop[etype] and is_parallel:",
        "        if False:",
        _KINDS,
    ),
    (
        "weights of self-loops are not counted",
        _DEGREES,
        "        _count_edge(g.loops.data, dst, 0, old, new)\n",
        "",
        _LONG,
    ),
    (
        "those of a relation are not counted",
        _DEGREES,
        "        _count_edge(g.loops.data, dst, t.DEGREE_WIDTH + place, old, new)\n",
        "        pass\n",
        _KINDS,
    ),
    (
        "what weights of self-loops cancel is not summed again",
        _DEGREES,
        "and (edge[at, t.SRC] == row) == of_loops:",
        "and edge[at, t.SRC] != row:",
        f"{_TESTS} -k self_loops",
    ),
    ("tags stay behind in a longer list", _LISTS, "            pool[new_half + i] = pool[old_half + i]\n", "", _TAGGED),
    (
        "the last tag does not move",
        _LISTS,
        "        pool[known + number] = pool[known + length - 1]\n",
        "",
        _TAGGED,
    ),
    ("a moved tag is not durable", _LISTS, "        touch(lists.pool, known + number)\n", "", _TAGGED),
    ("an entry is found by its value", _LISTS, "np.int64(tag if lists.tagged else value)", "np.int64(value)", _TAGGED),
]

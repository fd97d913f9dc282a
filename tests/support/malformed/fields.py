"""Ways to be wrong for JSON objects: one field of a good event is not what it should be (see `records`)."""

from __future__ import annotations

import random
from typing import Any

import orjson

from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import IN_WIDTH
from tests.support.malformed.records import (
    MEGABYTE,
    Make,
    Table,
    attributes,
    edge_event,
    features,
    vertex,
    vertex_event,
)

FIELDS = Table()
WIDTH, ATTRIBUTES = f"x: expected {IN_WIDTH} numbers", f"attr: expected {EDGE_WIDTH} numbers"


def field(*words: str, **options: Any) -> Any:
    """Add a way whose function draws a record; it goes on the wire as JSON."""

    def add(draw: Make) -> Make:
        def make(rng: random.Random) -> bytes:
            return orjson.dumps(draw(rng))

        make.__name__ = draw.__name__
        return FIELDS.way(*words, **options)(make)

    return add


Record = dict[str, Any]


def without(record: Record, name: str) -> Record:
    """The record without a field."""
    return {key: value for key, value in record.items() if key != name}


# -- op --------------------------------------------------------------------------------------------------------------


@field("op: expected one of add_vertex, del_vertex, set_features, add_edge, del_edge")
def unknown_op(rng: random.Random) -> Record:
    return edge_event(rng, op=rng.choice(["fly", "", "add edge", "ADD_EDGE", "add_edge ", "addedge", "é"]))


@field("op: missing")
def no_op(rng: random.Random) -> Record:
    return without(edge_event(rng), "op")


@field("op: missing")
def op_null(rng: random.Random) -> Record:
    return vertex_event(rng, op=None)


@field("op: missing")
def empty_object(rng: random.Random) -> Record:
    return {}


@field("op: expected a string", "the integer")
def op_is_a_number(rng: random.Random) -> Record:
    return edge_event(rng, op=rng.randrange(5))


@field("op: expected a string", "a list")
def op_is_a_list(rng: random.Random) -> Record:
    return edge_event(rng, op=["add_edge"])


@field("op: expected one of", heavy=True)
def long_line_of_an_unknown_op(rng: random.Random) -> Record:
    return {"op": "fly", "more": "x" * rng.randint(MEGABYTE, 3 * MEGABYTE)}


# -- ids -------------------------------------------------------------------------------------------------------------


@field("id: expected an integer", "the string")
def id_of_300_kilobytes(rng: random.Random) -> Record:
    return {"op": "add_vertex", "id": "x" * 300_000}


@field("id: missing")
def no_id(rng: random.Random) -> Record:
    return without(vertex_event(rng), "id")


@field("src: missing")
def no_src(rng: random.Random) -> Record:
    return without(edge_event(rng), "src")


@field("dst: missing")
def dst_null(rng: random.Random) -> Record:
    return edge_event(rng, dst=None)


@field("id: expected an integer", "the number")
def id_with_a_fraction(rng: random.Random) -> Record:
    return {"op": "del_vertex", "id": vertex(rng) + rng.choice([0.0, 0.5])}


@field("src: expected an integer", "the boolean")
def src_is_a_boolean(rng: random.Random) -> Record:
    return edge_event(rng, src=rng.random() < 0.5)


@field("id: expected an integer", "the string")
def id_is_a_string(rng: random.Random) -> Record:
    return vertex_event(rng, id=str(vertex(rng)))


@field("dst: expected an integer", "the string", heavy=True)
def dst_is_a_long_string(rng: random.Random) -> Record:
    return edge_event(rng, dst="v" * rng.randint(MEGABYTE, 2 * MEGABYTE))


@field("dst: expected an integer", "within int64")
def dst_past_int64(rng: random.Random) -> Record:
    return edge_event(rng, dst=rng.randrange(2**63, 2**64))


@FIELDS.way("id: expected an integer within int64")
def id_past_64_bits(rng: random.Random) -> bytes:
    sign = rng.choice([b"", b"-"])
    return b'{"op":"del_vertex","id":%s%d}' % (sign, rng.randrange(2**64, 2**70))


@field("src: expected an integer", "a list")
def src_is_a_list(rng: random.Random) -> Record:
    return edge_event(rng, src=[vertex(rng)])


@field("id: expected an integer", "an object")
def id_is_an_object(rng: random.Random) -> Record:
    return {"op": "del_vertex", "id": {"id": vertex(rng)}}


@FIELDS.way("id: expected an integer", "the string")
def last_of_two_ids_is_wrong(rng: random.Random) -> bytes:
    return b'{"op":"del_vertex","id":%d,"id":"x"}' % vertex(rng)


# -- features --------------------------------------------------------------------------------------------------------


@field(WIDTH, f"got {IN_WIDTH - 1}")
def one_feature_less(rng: random.Random) -> Record:
    return vertex_event(rng, x=features(rng)[1:])


@field(WIDTH, f"got {IN_WIDTH + 1}")
def one_feature_more(rng: random.Random) -> Record:
    return vertex_event(rng, x=[*features(rng), 1.0])


@field(WIDTH, "got 0")
def no_features_in_a_list(rng: random.Random) -> Record:
    return vertex_event(rng, op="add_vertex", x=[])


@field(WIDTH, "got 200000", heavy=True)
def features_without_an_end(rng: random.Random) -> Record:
    return vertex_event(rng, x=[0.5] * 200_000)


@field("x: missing")
def no_features(rng: random.Random) -> Record:
    return without(vertex_event(rng), "x")


@field("x: expected a list of numbers", "the string")
def features_are_a_string(rng: random.Random) -> Record:
    return vertex_event(rng, x=str(features(rng)))


@field("x: expected a list of numbers", "an object")
def features_are_an_object(rng: random.Random) -> Record:
    return vertex_event(rng, x={"0": 1.0})


def _one_of_x(rng: random.Random, value: Any) -> Record:
    x = features(rng)
    x[3] = value
    return vertex_event(rng, x=x)


@field("x: expected numbers", "the string", "index 3")
def feature_is_a_string(rng: random.Random) -> Record:
    return _one_of_x(rng, "1.0")


@field("x: expected numbers", "null", "index 3")
def feature_is_null(rng: random.Random) -> Record:
    return _one_of_x(rng, None)


@field("x: expected numbers", "the boolean", "index 3")
def feature_is_a_boolean(rng: random.Random) -> Record:
    return _one_of_x(rng, True)


@field("x: expected numbers", "a list", "index 3")
def feature_is_deeply_nested(rng: random.Random) -> Record:
    value: list[Any] = []
    for _ in range(rng.randint(1, 200)):
        value = [value]
    return _one_of_x(rng, value)


@field("x: not finite in float32", "index 3")
def feature_past_float32(rng: random.Random) -> Record:
    return _one_of_x(rng, rng.choice([1e39, -3.5e38, 10**40 / 3, 1e308]))


# -- edges -----------------------------------------------------------------------------------------------------------


@field("weight: expected a number", "the string")
def weight_is_a_string(rng: random.Random) -> Record:
    return edge_event(rng, weight=rng.choice(["1", "NaN", ""]))


@field("weight: expected a number", "the boolean")
def weight_is_a_boolean(rng: random.Random) -> Record:
    return edge_event(rng, weight=True)


@field("weight: expected a number", "an object")
def weight_is_an_object(rng: random.Random) -> Record:
    return edge_event(rng, weight={})


@field("weight: not finite in float32")
def weight_past_float32(rng: random.Random) -> Record:
    return edge_event(rng, weight=rng.choice([1e39, -1e300]))


@field("type: expected a string", "the integer")
def type_is_a_number(rng: random.Random) -> Record:
    return edge_event(rng, type=rng.randrange(3))


@field("type: expected a string", "a list")
def type_of_a_deletion_is_a_list(rng: random.Random) -> Record:
    return edge_event(rng, op="del_edge", type=["cites"])


@field("type: expected a name", "empty")
def type_is_empty(rng: random.Random) -> Record:
    return edge_event(rng, op=rng.choice(["add_edge", "del_edge"]), type="")


@field("type: expected at most 1024 bytes")
def type_with_a_long_name(rng: random.Random) -> Record:
    return edge_event(rng, type=rng.choice(["x", "é", "😀"]) * rng.randint(1025, 100_000))


# -- attributes of edges ----------------------------------------------------------------------------------------------


@field(ATTRIBUTES, f"got {EDGE_WIDTH - 1}")
def one_attribute_less(rng: random.Random) -> Record:
    return edge_event(rng, attr=attributes(rng)[1:])


@field(ATTRIBUTES, f"got {EDGE_WIDTH + 1}")
def one_attribute_more(rng: random.Random) -> Record:
    return edge_event(rng, attr=[*attributes(rng), 1.0])


@field(ATTRIBUTES, "got 0")
def no_attributes_in_a_list(rng: random.Random) -> Record:
    return edge_event(rng, attr=[])


@field(ATTRIBUTES, f"got {2 * EDGE_WIDTH}")
def attributes_as_wide_as_those_of_another_type(rng: random.Random) -> Record:
    return edge_event(rng, type="wide", attr=2 * attributes(rng))


@field(ATTRIBUTES, "got 200000", heavy=True)
def attributes_without_an_end(rng: random.Random) -> Record:
    return edge_event(rng, attr=[0.5] * 200_000)


@field("attr: expected a list of numbers", "the number")
def attr_is_a_number(rng: random.Random) -> Record:
    return edge_event(rng, attr=0.5)


@field("attr: expected a list of numbers", "the boolean")
def attr_is_a_boolean(rng: random.Random) -> Record:
    return edge_event(rng, attr=rng.random() < 0.5)


@field("attr: expected a list of numbers", "the string")
def attr_is_a_string(rng: random.Random) -> Record:
    return edge_event(rng, attr=rng.choice(["0.5, 1.5, 2.5", "NaN", "", "[1,2,3]"]))


@field("attr: expected a list of numbers", "an object")
def attr_is_an_object(rng: random.Random) -> Record:
    return edge_event(rng, attr=rng.choice([{}, {"0": 0.5, "1": 1.5, "2": 2.5}, {"amount": attributes(rng)}]))


@field("attr: expected numbers", "a list at index 0")
def attr_is_nested(rng: random.Random) -> Record:
    return edge_event(rng, attr=[[one] for one in attributes(rng)])


@field(ATTRIBUTES, "got 1")
def attr_is_nested_as_a_whole(rng: random.Random) -> Record:
    return edge_event(rng, attr=[attributes(rng)])


@field("attr: expected numbers", "a list at index 1")
def attr_is_ragged(rng: random.Random) -> Record:
    return edge_event(rng, attr=[0.5, attributes(rng)[1:], 1.5])


@field("attr: expected numbers", "the string")
def attr_of_strings(rng: random.Random) -> Record:
    return edge_event(rng, attr=list(map(str, attributes(rng))))


@field("attr: expected numbers", "the boolean", "index 2")
def attr_of_a_boolean(rng: random.Random) -> Record:
    return edge_event(rng, attr=[*attributes(rng)[1:], rng.random() < 0.5])


@field("attr: expected numbers", "null at index 1")
def attr_with_a_null(rng: random.Random) -> Record:
    return edge_event(rng, attr=[0.5, None, 1.5])


@field("attr: not finite in float32", "index 1")
def attr_past_float32(rng: random.Random) -> Record:
    return edge_event(rng, attr=[0.0, rng.choice([1e39, -3.5e38, 1e308]), 1.0])


@FIELDS.way("not JSON")
def attr_not_finite(rng: random.Random) -> bytes:
    return b'{"op":"add_edge","src":1,"dst":2,"attr":[0,%s,1]}' % rng.choice(
        [b"NaN", b"Infinity", b"-Infinity", b"1e400"]
    )


# -- keys of edges: values that are none in any job, in one whose edges have none -------------------------------------

NO_KEYS = "key: edges of this job have no keys", "--edge-key"


@field(*NO_KEYS)
def key_that_is_none(rng: random.Random) -> Record:
    key = rng.choice([1.5, 7.0, True, [7], {}, "", 1e30, "k" * rng.randint(1025, 100_000)])
    return edge_event(rng, op=rng.choice(["add_edge", "del_edge"]), key=key)


@field(*NO_KEYS)
def all_keys_of_an_edge_that_is_added(rng: random.Random) -> Record:
    return edge_event(rng, key="*")


@field(*NO_KEYS, heavy=True)
def key_of_some_megabytes(rng: random.Random) -> Record:
    return edge_event(rng, key="k" * rng.randint(MEGABYTE, 3 * MEGABYTE))


# -- times -----------------------------------------------------------------------------------------------------------


@field("ts: expected an integer (milliseconds)")
def ts_is_no_integer(rng: random.Random) -> Record:
    ts = rng.choice(["2024-01-01", "17", True, 1.5, 17.0, [17], {"ms": 17}])
    return rng.choice([edge_event, vertex_event])(rng, ts=ts)


@FIELDS.way("ts: expected an integer above -2**63 and below 2**63")
def ts_past_int64(rng: random.Random) -> bytes:
    ts = rng.choice([2**63, 2**64, 2**70, -(2**63), -(2**63) - 1])
    return b'{"op":"del_vertex","id":%d,"ts":%d}' % (vertex(rng), ts)

"""Random event streams over tiny domains, so that cancellation, re-addition and hubs happen often."""

from __future__ import annotations

import random
from itertools import zip_longest
from typing import Any

import orjson

from freshet.operators.parser.core import Origin, Parser
from freshet.partitioner.events import Events
from freshet.schema import Features

Record = dict[str, Any]


def random_records(
    rng: random.Random,
    count: int,
    width: int,
    *,
    vertices: int = 9,
    weighted: bool = True,
    types: tuple[str, ...] = (),
    strings: bool = False,
    integer: bool = False,
    loops: bool = True,
) -> list[Record]:
    """Events of all five kinds; some delete what is not there, some add what is."""

    def vertex() -> Any:
        # a few ids are far likelier than the others: they become hubs
        number = min(rng.randrange(vertices), rng.randrange(vertices))
        return f"v{number}é" if strings else number * 7 - 5

    def features() -> list[float]:
        return [float(rng.randint(-2, 2)) if integer else round(rng.gauss(0, 1), 3) for _ in range(width)]

    def edge() -> Record:
        while True:
            record: Record = {"src": vertex(), "dst": vertex()}
            if loops or record["src"] != record["dst"]:
                break
        if types and rng.random() < 0.7 and record["src"] != record["dst"]:
            record["type"] = rng.choice(types)
        return record

    records = []
    for _ in range(count):
        draw = rng.random()
        if draw < 0.5:
            record = {"op": "add_edge", **edge()}
            if weighted and rng.random() < 0.7:
                record["weight"] = rng.choice([1, 2, -1, 0, 3]) if integer else round(rng.uniform(0.1, 2), 2)
        elif draw < 0.7:
            record = {"op": "del_edge", **edge()}
        elif draw < 0.8:
            record = {"op": "add_vertex", "id": vertex()}
            if rng.random() < 0.6:
                record["x"] = features()
        elif draw < 0.93:
            record = {"op": "set_features", "id": vertex(), "x": features()}
        else:
            record = {"op": "del_vertex", "id": vertex()}
        records.append(record)
    return records


def with_attributes(records: list[Record], edge_width: int, categories: tuple[int, ...] = ()) -> list[Record]:
    """The records with attributes on most of the added edges that have none: half integers, and the same ones often.

    `categories`: how many of these each attribute numbers, 0 where it is any number.
    """
    rng, found = random.Random(f"attributes of {len(records)}"), []
    for record in records:
        if record["op"] == "add_edge" and "attr" not in record and rng.random() < 0.8:
            values = rng.choices([-1.0, 0.0, 0.5, 2.0], k=1) * edge_width
            if rng.random() < 0.7:
                values = [rng.randint(-4, 4) / 2 for _ in range(edge_width)]
            values = [rng.randrange(of) if of else one for one, of in zip_longest(values, categories)]
            record = {**record, "attr": values}
        found.append(record)
    return found


def to_events(
    records: list[Record],
    width: int,
    edge_types: tuple[str, ...] = (),
    *,
    edge_width: int = 0,
    columns: int = 0,
    categories: tuple[int, ...] = (),
) -> Events:
    """The records through the Parser; all must be accepted. With `edge_width` edges get attributes.

    `columns`: how many columns of types the graph has in front of these. `categories`: as `with_attributes`.
    """
    records = with_attributes(records, edge_width, categories) if edge_width else records
    data = b"\n".join(orjson.dumps(record) for record in records)
    features = Features(width, columns + edge_width, types=columns, categories=categories)
    events, letters = Parser(features, None, edge_types or None).parse_jsonl(data, Origin())
    assert not letters, letters
    assert len(events) == len(records)
    return events

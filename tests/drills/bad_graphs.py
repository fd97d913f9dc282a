"""Graphs of the bad-input test: their good events, the ways to be wrong about them, their model, and what it makes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.oracles.scaled import Scaled
from freshet.operators.sink.change_log_reader import Positions
from freshet.schema import Features
from tests.support.graphs.attributed import EDGE_WIDTH, gine
from tests.support.graphs.kind_streams import graph_of, random_records, scaled_embeddings
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.plain_graph import embeddings, in_order, replay
from tests.support.graphs.shop_kinds import KINDS, shop_model
from tests.support.graphs.streams import Record, with_attributes
from tests.support.graphs.streams import random_records as records_of_one_kind
from tests.support.malformed.kinds import kind_ways
from tests.support.malformed.records import BYTES, VERTICES, Way, all_ways

_PIECE = 20_000


class BadGraph(Protocol):
    """What a stream of good and malformed records is about."""

    @property
    def ways(self) -> list[Way]:
        """The ways to be wrong; their names are unique."""

    def records(self, rng: random.Random, count: int) -> Iterator[Record]:
        """Draw good events."""

    def model(self, seed: int) -> Model | KindsModel:
        """Draw a model."""

    def embeddings(
        self, good: list[list[bytes]], positions: Positions, model: Model | KindsModel
    ) -> tuple[int, np.ndarray, Scaled]:
        """The number of events, the ids, and the embeddings after all good events, without any rules."""


class OneKind:
    """Vertices of one kind, edges with attributes."""

    @property
    def ways(self) -> list[Way]:
        """All of them: bytes, fields, Arrow."""
        return all_ways()

    def records(self, rng: random.Random, count: int) -> Iterator[Record]:
        """Draw good events."""
        for begin in range(0, count, _PIECE):
            records = records_of_one_kind(rng, min(_PIECE, count - begin), IN_WIDTH, vertices=VERTICES)
            yield from with_attributes(records, EDGE_WIDTH)

    def model(self, seed: int) -> Model:
        """Draw a model that reads the attributes."""
        return make_model(seed, [gine(IN_WIDTH, 8), {"type": "relu"}, conv("gcn_conv", 8, 4)])

    def embeddings(
        self, good: list[list[bytes]], positions: Positions, model: Model | KindsModel
    ) -> tuple[int, np.ndarray, Scaled]:
        """The number of events, the ids, and the embeddings after all good events, without any rules."""
        assert isinstance(model, Model)
        graph, events = replay(good, positions, Features(IN_WIDTH, EDGE_WIDTH))
        return events, *embeddings(graph, model)


class SeveralKinds:
    """Vertices of several kinds, relations that share a type, have attributes, and mirrors."""

    @property
    def ways(self) -> list[Way]:
        """Bytes that are no events, and what is wrong about kinds and relations."""
        return [*BYTES.ways, *kind_ways()]

    def records(self, rng: random.Random, count: int) -> Iterator[Record]:
        """Draw good events."""
        for begin in range(0, count, _PIECE):
            many = min(_PIECE, count - begin)
            yield from random_records(KINDS, rng.randrange(1 << 30), many)[:many]

    def model(self, seed: int) -> KindsModel:
        """Draw a model that reads all relations."""
        return shop_model(seed)

    def embeddings(
        self, good: list[list[bytes]], positions: Positions, model: Model | KindsModel
    ) -> tuple[int, np.ndarray, Scaled]:
        """The number of events, the ids, and the embeddings after all good events, without any rules."""
        assert isinstance(model, KindsModel)
        records: list[Record] = []
        events = in_order(good, positions, records.append)
        ids, found = scaled_embeddings(model, graph_of(KINDS, records))
        return events, np.array(ids, np.int64), found

"""The demo's changes of the Cora graph: a stream of all five kinds of events that completes the snapshot.

The held-back papers arrive, some with half of their words at first, and their citations follow. Meanwhile citations
are withdrawn and restored, wrong ones appear and are taken back, papers leave and return, words go and come back. At
the end the graph is Cora but for a few papers that left for good and a few wrong citations. The same seed gives the
same events.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from scripts.cora.graph import SPLITS, WORDS, Cora

Edge = tuple[int, int]
Record = dict[str, Any]

HALF_AT_FIRST = 0.3  # share of the papers that arrive with half of their words
LEAVE_FOR_GOOD = 0.2  # of the departing papers outside the splits
STAY_WRONG = 0.05  # of the wrong citations
SENT_TWICE = 0.01  # of all events, as a source does that tries again


class Pool:
    """A set that one can draw from at random in constant time, and by the order of its past alone."""

    def __init__(self, items: Any = ()) -> None:
        self._items: list[Any] = []
        self._place: dict[Hashable, int] = {}
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __contains__(self, item: Hashable) -> bool:
        return item in self._place

    def add(self, item: Any) -> None:
        """Put an item in."""
        if item not in self._place:
            self._place[item] = len(self._items)
            self._items.append(item)

    def discard(self, item: Any) -> None:
        """Take an item out, if it is there."""
        place = self._place.pop(item, None)
        if place is None:
            return
        last = self._items.pop()
        if place < len(self._items):
            self._items[place], self._place[last] = last, place

    def draw(self, rng: random.Random) -> Any:
        """One of the items, which stays."""
        return self._items[rng.randrange(len(self._items))]


class Walk:
    """A walk from the snapshot to the whole graph; `disturb` takes it away from there, `mend` one event closer."""

    def __init__(self, graph: Cora, seed: int) -> None:
        self.graph, self.rng = graph, random.Random(seed)
        self.neighbours: list[list[int]] = [[] for _ in range(len(graph))]
        for a, b in graph.edges.tolist():
            self.neighbours[a].append(b)
            self.neighbours[b].append(a)
        papers = list(range(len(graph)))
        self.here = Pool(paper for paper in papers if graph.known[paper])
        self.away = Pool(paper for paper in papers if not graph.known[paper])  # not yet arrived, or left for a while
        self.gone: set[int] = set()  # left for good
        self.cited = Pool(map(tuple, graph.known_edges().tolist()))  # the true citations that are there
        self.open = Pool()  # those that are not, though both papers are
        self.wrong = Pool()  # citations that are there and should not be
        self.kept_wrong: set[Edge] = set()
        self.partial = Pool()  # papers without some of their words
        self.goal = len(graph.edges)  # citations between papers that are not gone

    def missing(self) -> int:
        """Events that are needed, at the least, to complete the graph."""
        return len(self.away) + self.goal - len(self.cited) + len(self.wrong) + len(self.partial)

    # -- one event closer

    def mend(self) -> Record:
        """Citations first, so that those of a paper follow its arrival; else whatever is amiss, at random."""
        choices = {
            self.arrive: len(self.away),
            self.cite: 20 * len(self.open),
            self.take_back: len(self.wrong),
            self.restore: len(self.partial),
        }
        return self.rng.choices(list(choices), list(choices.values()))[0]()

    def arrive(self) -> Record:
        """A paper comes, for the first time or back; its citations are open then."""
        paper = self.away.draw(self.rng)
        self.away.discard(paper)
        self.here.add(paper)
        for other in self.neighbours[paper]:
            if other in self.here:
                self.open.add(_edge(paper, other))
        half = self.rng.random() < HALF_AT_FIRST
        if half:
            self.partial.add(paper)
        return {"op": "add_vertex", "id": paper, "x": self.features(paper, half)}

    def cite(self) -> Record:
        """A citation that is open."""
        edge = self.open.draw(self.rng)
        self.open.discard(edge)
        self.cited.add(edge)
        return self.edge_event("add_edge", edge)

    def take_back(self) -> Record:
        """A wrong citation goes."""
        edge = self.wrong.draw(self.rng)
        self.wrong.discard(edge)
        return self.edge_event("del_edge", edge)

    def restore(self) -> Record:
        """A paper has all its words again."""
        paper = self.partial.draw(self.rng)
        self.partial.discard(paper)
        return {"op": "set_features", "id": paper, "x": self.features(paper, half=False)}

    # -- one event away

    def disturb(self) -> Record:
        """One of the four below, at random."""
        choices = {self.withdraw: 35, self.cite_wrongly: 20, self.forget_words: 35, self.leave: 10}
        return self.rng.choices(list(choices), list(choices.values()))[0]()

    def withdraw(self) -> Record:
        """A true citation goes."""
        edge = self.cited.draw(self.rng)
        self.cited.discard(edge)
        self.open.add(edge)
        return self.edge_event("del_edge", edge)

    def cite_wrongly(self) -> Record:
        """A citation that is none in Cora comes."""
        while True:
            a, b = self.here.draw(self.rng), self.here.draw(self.rng)
            edge = _edge(a, b)
            if a != b and b not in self.neighbours[a] and edge not in self.wrong and edge not in self.kept_wrong:
                break
        if self.rng.random() < STAY_WRONG:
            self.kept_wrong.add(edge)
        else:
            self.wrong.add(edge)
        return self.edge_event("add_edge", edge)

    def forget_words(self) -> Record:
        """A paper loses half of its words."""
        paper = self.here.draw(self.rng)
        self.partial.add(paper)
        return {"op": "set_features", "id": paper, "x": self.features(paper, half=True)}

    def leave(self) -> Record:
        """A paper leaves and takes all its citations along."""
        paper = self.here.draw(self.rng)
        self.here.discard(paper)
        self.partial.discard(paper)
        for other in self.neighbours[paper]:
            self.cited.discard(_edge(paper, other))
            self.open.discard(_edge(paper, other))
        for edge in [edge for edge in (*self.wrong, *self.kept_wrong) if paper in edge]:
            self.wrong.discard(edge)
            self.kept_wrong.discard(edge)
        if SPLITS[self.graph.split[paper]] == "none" and self.rng.random() < LEAVE_FOR_GOOD:
            self.gone.add(paper)
            self.goal -= sum(other not in self.gone for other in self.neighbours[paper])
        else:
            self.away.add(paper)
        return {"op": "del_vertex", "id": paper}

    # -- events

    def features(self, paper: int, half: bool) -> list[int]:
        """The paper's features, with all of its words or a random half."""
        words = self.graph.words_of(paper).tolist()
        if half:
            words = self.rng.sample(words, (len(words) + 1) // 2)
        x = np.zeros(WORDS, np.int8)
        x[words] = 1
        return x.tolist()

    def edge_event(self, op: str, edge: Edge) -> Record:
        """An edge has no direction here: either end may be named first."""
        src, dst = edge if self.rng.random() < 0.5 else edge[::-1]
        return {"op": op, "src": src, "dst": dst}


def _edge(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)


def make_stream(graph: Cora, count: int, seed: int) -> list[Record]:
    """Return at least `events` events; the number of missing ones declines evenly towards the end.

    Raises: ValueError when so few events can't complete the graph.
    """
    walk = Walk(graph, seed)
    begin = walk.missing()
    if count < 1.5 * begin:
        msg = f"{count} events: {begin} are needed for what the snapshot lacks alone; take {2 * begin} or more"
        raise ValueError(msg)
    records: list[Record] = []
    while (missing := walk.missing()) or len(records) < count:
        record = walk.mend() if missing > begin * (1 - len(records) / count) else walk.disturb()
        records.append(record)
        if walk.rng.random() < SENT_TWICE:
            records.append(record)
    return records

"""Kinds of vertices, and relations between them, as the model lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from freshet.errors import InputError

KINDS_MAX = 100  # their numbers have two digits: the names of columns in blocks have 16 bytes
NO_MIRROR = -1
NO_NAME = ""  # of the one kind of a model that has relations alone: neither events nor tables name it
_SHOWN = 20  # names in a reason


class KindsError(InputError, ValueError):
    """Kinds or relations that make no sense."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Edges of one type from vertices of one kind to those of another, or the same.

    `source`, `target`: numbers of kinds. `edge_width`: numbers in the attr of an edge, 0: it has none. `mirrors`: the
    number of the relation whose edges these follow, the other way round; NO_MIRROR: events bring them.
    """

    source: int
    type: str
    target: int
    edge_width: int = 0
    mirrors: int = NO_MIRROR


@dataclass(frozen=True)
class Kinds:
    """The kinds of a graph's vertices and the relations of its edges, each numbered in the model's order.

    A vertex is a kind and an id. An edge has the kinds of its relation at its ends.

    Raises:
        KindsError: they contradict each other; the message names what.
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    """Of the raw features, by kind."""
    relations: tuple[Relation, ...]

    def __post_init__(self) -> None:
        if why := self._contradiction():
            raise KindsError(why)

    def _contradiction(self) -> str | None:
        count = len(self.names)
        if not 1 <= count <= KINDS_MAX or len(set(self.names)) != count or len(self.widths) != count:
            return f"kinds: expected 1 to {KINDS_MAX} distinct names, each with a width, got {list(self.names)}"
        if NO_NAME in self.names and count > 1:
            return f"kinds: expected a name for each of several, got {list(self.names)}"
        triples = [(one.source, one.type, one.target) for one in self.relations]
        if not triples or len(set(triples)) != len(triples):
            return f"relations: expected one or more, all distinct, got {triples}"
        followed = Counter(one.mirrors for one in self.relations if one.mirrors != NO_MIRROR)
        for one in self.relations:
            if not (one.type and 0 <= one.source < count and 0 <= one.target < count):
                return f"relations: expected a type between kinds 0 to {count - 1}, got {one}"
            if one.mirrors == NO_MIRROR:
                continue
            other = self.relations[one.mirrors] if 0 <= one.mirrors < len(self.relations) else None
            if other is None or other.mirrors != NO_MIRROR or (other.target, other.source) != (one.source, one.target):
                return f"relations: {one.type!r} mirrors no relation from its target to its source that events bring"
            if followed[one.mirrors] > 1:
                return f"relations: {other.type!r} has {followed[one.mirrors]} mirrors, expected one at most"
            if one.edge_width not in (0, other.edge_width):
                return f"relations: {one.type!r} has attributes of another width than {other.type!r}, which it mirrors"
        return None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def are_named(self) -> bool:
        """True if events and tables name the kinds of vertices."""
        return self.names != (NO_NAME,)

    @property
    def edge_width(self) -> int:
        """The largest width of attributes of a relation."""
        return max(one.edge_width for one in self.relations)

    @cached_property
    def relation_names(self) -> tuple[str, ...]:
        """Distinct names of the relations: their types, or where several have one type `source,type,target`."""
        uses = Counter(one.type for one in self.relations)
        return tuple(one.type if uses[one.type] == 1 else ",".join(self.triple(one)) for one in self.relations)

    def triple(self, relation: Relation) -> tuple[str, str, str]:
        """Return a relation in names: source, type, target."""
        return self.names[relation.source], relation.type, self.names[relation.target]

    def fields_of(self, number: int) -> dict[str, str]:
        """Return the fields by which an event says the relation of its edge."""
        relation = self.relations[number]
        source, name, target = self.triple(relation)
        return {"type": name} | ({} if name in self.sole else {"src_kind": source, "dst_kind": target})

    @cached_property
    def ends(self) -> np.ndarray:
        """The kinds of sources and of targets by relation, (2, relations) int32."""
        return np.array([[one.source, one.target] for one in self.relations], np.int32).T.copy()

    @cached_property
    def edge_widths(self) -> np.ndarray:
        """The width of attributes by relation, (relations,) int64."""
        return np.array([one.edge_width for one in self.relations], np.int64)

    @cached_property
    def kind_codes(self) -> Mapping[str, int]:
        """The number of each kind, by name."""
        return {name: code for code, name in enumerate(self.names)}

    @cached_property
    def by_type(self) -> Mapping[str, tuple[int, ...]]:
        """The relations of each type: those that events bring, or mirrors where all are."""
        found: dict[str, list[int]] = {}
        for number, one in enumerate(self.relations):
            found.setdefault(one.type, []).append(number)
        given = {name: [k for k in every if self.relations[k].mirrors == NO_MIRROR] for name, every in found.items()}
        return {name: tuple(given[name] or every) for name, every in found.items()}

    @cached_property
    def sole(self) -> Mapping[str, int]:
        """The relation of each type that says it alone, of those that events bring."""
        found = {name: every[0] for name, every in self.by_type.items() if len(every) == 1}
        return {name: number for name, number in found.items() if self.relations[number].mirrors == NO_MIRROR}

    @property
    def types(self) -> list[str]:
        """The types of edges that events may name, each once."""
        return [name for name, every in self.by_type.items() if self.relations[every[0]].mirrors == NO_MIRROR]

    @cached_property
    def untyped(self) -> int | None:
        """The relation of edges without a type: the first that events bring, where vertices have no kind; else None."""
        return self.sole[self.types[0]] if not self.are_named else None

    def without_types(self, fields: Container[str]) -> str:
        """Say which type edges have where no field says it; empty where one does, or no other type can be meant."""
        if "type" in fields or self.untyped is None or len(self.types) == 1:
            return ""
        return f"no column type: each edge is taken as {self.types[0]!r}, the first of the model's edge types"

    @property
    def type_says_all(self) -> bool:
        """True if no edge needs the kinds of its ends besides its type."""
        return len(self.sole) == len(self.types)

    def matching(self, type_name: str, source: int | None, target: int | None) -> list[int]:
        """Return the relations of a type between these kinds (None: any), mirrors where there are no others."""
        every = [number for number, one in enumerate(self.relations) if one.type == type_name]
        every = [k for k in every if source is None or self.relations[k].source == source]
        every = [k for k in every if target is None or self.relations[k].target == target]
        return [k for k in every if self.relations[k].mirrors == NO_MIRROR] or every

    def mirrors(self, *, undirected: bool = False) -> np.ndarray:
        """Return the relation that follows each one, NO_MIRROR where none does, (relations,) int32.

        `undirected`: edges within a kind that no other relation follows do so themselves.

        Raises:
            KindsError: edges between two kinds are to be undirected.
        """
        mirrors = np.full(len(self.relations), NO_MIRROR, np.int32)
        for number, one in enumerate(self.relations):
            if one.mirrors != NO_MIRROR:
                mirrors[one.mirrors] = number
        for number, one in enumerate(self.relations) if undirected else ():
            if mirrors[number] != NO_MIRROR or one.mirrors != NO_MIRROR:
                continue
            if one.source != one.target:
                source, name, target = self.triple(one)
                msg = (
                    f"--undirected: edges of {name!r} lead from {source} to {target}, so only another relation can "
                    "follow them: export the model with mirrors"
                )
                raise KindsError(msg)
            mirrors[number] = number
        return mirrors


def some_names(names: Sequence[Any]) -> str:
    """Return names for a reason, only the first ones of many."""
    more = len(names) - _SHOWN
    return ", ".join(map(str, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")

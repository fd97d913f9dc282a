"""Reads what a forward with kinds computes along edges by hand: edges of types, functions of rows of both ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from freshet.gnn.pyg.encoded_conv import EndColumns, FunctionOfEdges
from freshet.gnn.pyg.errors import RECORDED, WIDTH, ExportError
from freshet.gnn.pyg.forward.again import Encoding
from freshet.gnn.pyg.forward.places import label_of
from freshet.gnn.pyg.forward.samples import vertices_of
from freshet.gnn.pyg.kinds.by_type import picked_in_front
from freshet.gnn.pyg.kinds.convs.within import opened_between, opened_within
from freshet.gnn.pyg.kinds.operations import OnRelation
from freshet.gnn.pyg.kinds.reading_ids import LookingReader
from freshet.gnn.pyg.kinds.widths import how_wide, known_width

_SIZED = {
    "size",
    "getattr",
    "numel",
    "dim",
    "zeros_like",
    "ones_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
}
"""Operations that read the shape of rows, which are no rows by themselves."""


class EdgesReader(LookingReader):
    """A reader of a forward with kinds that knows edges of types, and functions along the edges of a relation."""

    def __init__(self, *given: Any, **more: Any) -> None:
        """Take what a reader with kinds takes."""
        super().__init__(*given, **more)
        self._counts = dict[Any, str]()  # rows of numbers that are counted along the other relation

    def _settle(self, node: Any) -> None:
        mixed = node in self._mixed
        if mixed and not self._read_relations(node):  # what it read of edges are rows by now
            self._mixed.discard(node)
            self._waiting[node] = None
        super()._settle(node)
        if mixed:
            self._of_convs.add(node)

    def _is_beside(self, node: Any) -> bool:
        if node not in self._waiting:
            return False
        made, waiting = set[Any](), [node]
        while waiting:
            one = waiting.pop()
            made.add(one)
            waiting += [other for other in one.all_input_nodes if other in self._waiting and other not in made]
        return not any(label_of(one) in _SIZED for one in made)

    def _is_one_function(self, read: Sequence[Any]) -> bool:
        relations = self._read_relations(*read)
        kinds = [self._ops.kind[name] for name in {name for one in read for name in self._read_rows(one)}]
        if len(relations) != 1 or not kinds or not set(kinds) <= set(self._kinds.ends(relations.pop())):
            return False
        one_of_each = len(set(kinds)) == len(kinds) and not (self._both_ways and self._goes_both_ways(read))
        return one_of_each or self._are_along(read)

    def _takes_numbers_back(self, node: Any, mixed: Sequence[Any]) -> bool:
        """Return False: what is brought together along one relation may be read along another one."""
        return False

    def _read_relations(self, *nodes: Any) -> set[int]:
        """Return the relations whose edges, or what these have, something is made of, behind rows.

        What edges have that are read both ways is of those edges that are read.
        """
        of_edges, of_values, seen, waiting = set[int](), set[int](), set[Any](), list(nodes)
        while waiting:
            one = waiting.pop()
            if one in seen or one in self._rows or one in self._constants:
                continue
            seen.add(one)
            end = self._samples.end_of(one)
            edges = self._samples.relation_of("edges", one) if end is None else end[0]
            values = [self._samples.relation_of(what, one) for what in ("weights", "attributes")]
            of_edges.update(one for one in (edges,) if one is not None)
            of_values.update(one for one in values if one is not None)
            if edges is None and not any(value is not None for value in values) and not self._samples.size_of(one):
                waiting += one.all_input_nodes
        return of_edges if self._both_ways and of_edges else of_edges | of_values

    def _function_of_edges(self, node: Any) -> str:
        """Note a function along the edges of a relation; returns the name of its rows, which are those of targets."""
        reads, relation = dict[str, int](), self._read_relations(node).pop()
        along, ends_at = relation, self._brought_to(node)
        if self._both_ways and len(ends_at) == 1:
            relation = (
                1 - ends_at.pop()
            )  # the first relation ends at the second row of its edges, its mirror at the first
        source, target = kinds = self._kinds.ends(relation)
        counts = self._counted_elsewhere(node, relation) if self._both_ways else {}
        ends, columns, two_kinds = list[str](), dict[str, EndColumns](), source != target
        for end, kind in enumerate(kinds if two_kinds else (source,)):
            read = self._read_rows(node) | set(counts.values())
            of_kind = sorted(name for name in read if self._ops.kind[name] == kind)
            ends.append(self._beside(node, of_kind) if of_kind else self._ops.inputs[kind])
            columns |= self._columns(node, end, of_kind)
        self._sizes.clear()

        def given(one: Any) -> str | None:
            rows = self._rows.get(one) or counts.get(one)
            return self._given_of_edges(node, one, reads) if rows is None else _parameter(rows)

        function = self._again(node, given)
        if function is None or reads.get("edge_index", along) != along:
            raise ExportError(self._reads_other(node))
        sizes = self._sizes_of(node, relation)
        step = Encoding({}, {}, {}, set(reads)).step(self._name(node), None, pair=two_kinds, two_kinds=two_kinds)
        step = step._replace(op=FunctionOfEdges(function, sizes, columns, turned=relation != along))
        return self._on_relation(node, OnRelation(relation, ends[0], ends[-1], step), [], {})

    def _counted_elsewhere(self, node: Any, relation: int) -> dict[Any, str]:
        """Return what a function counts or sums of edges alone at the ends that it brings no rows to, as rows.

        These are aggregates along the other relation of the two, a number for each vertex.
        """
        found, seen, waiting = dict[Any, str](), set[Any](), list(node.all_input_nodes)
        while waiting:
            one = waiting.pop()
            if one in seen or one in self._rows or one in self._constants or one in self._samples:
                continue
            seen.add(one)
            is_count = self._dims(one) == 1 and not self._is_along(one) and not self._read_rows(one)
            if is_count and self._brought_to(one) == {relation}:
                if one not in self._counts:
                    self._counts[one] = self._function_of_edges(one)
                found[one] = self._counts[one]
            else:
                waiting += one.all_input_nodes
        return found

    def _beside(self, node: Any, names: Sequence[str], end: int = 0) -> str:
        """Return the name of the rows of several layers side by side, or of those of one; `end`: of two of a conv."""
        if len(names) == 1:
            return names[0]
        return self._ops.join(f"{self._name(node)}.{'targets' if end else 'rows'}", "cat", names)

    def _columns(self, node: Any, end: int, names: Sequence[str]) -> dict[str, EndColumns]:
        """Return where the rows of these names stand in those of an end.

        Raises: ExportError where it is unknown how wide rows of several layers are.
        """
        counts = set(self._counts.values())
        if len(names) < 2:
            return {_parameter(name): EndColumns(end, flat=name in counts) for name in names}
        found, begin = dict[str, EndColumns](), 0
        for name in names:
            width = 1 if name in counts else known_width(self._ops, name, self._kinds)
            if width is None:
                msg = f"the width of {name} is unknown; " + how_wide(
                    self._kinds, self._kinds.names[self._ops.kind[name]]
                )
                raise ExportError(msg).of(WIDTH)
            found[_parameter(name)] = EndColumns(end, begin, width, flat=name in counts)
            begin += width
        return found

    def _sizes_of(self, node: Any, relation: int) -> tuple[str, str]:
        if len(self._kinds.names) == 1:
            return super()._sizes_of(node, relation)
        source, target = map(vertices_of, self._kinds.ends(relation))
        if others := self._sizes - {source, target, "edges"}:
            kind = self._kinds.names[int(others.pop().rpartition("_")[2])]
            msg = f"{self._place(node)} reads the number of vertices of {kind!r} along edges of "
            raise ExportError(msg + f"{self._kinds.named(relation)}, which has no such end").of(RECORDED)
        self._sizes.clear()
        return source, target

    def _on_relation(self, node: Any, of: OnRelation, first: Sequence[str], constants: Mapping[str, Any]) -> str:
        """Note a conv on a relation as all that it is; `first` as opened_within has them."""
        place, (source, target) = self._place(node), self._kinds.ends(of.relation)
        of = of._replace(step=of.step._replace(edge_width=self._edge_width))
        if source == target and of.source == of.target:
            rows = opened_within(self._ops, self._kinds, (place, of.relation), of.step, [of.source, *first], constants)
            if rows is not None:
                return rows
        if source != target and (rows := opened_between(self._ops, self._kinds, place, of)) is not None:
            return rows
        return self._ops.conv(place, of)

    def _picks(self, node: Any) -> bool:
        """Return whether a node picks edges of types from what was made of weights or attributes of all."""
        if label_of(node) != "getitem" or node.args[0] not in self._of_edges or node.args[0] in self._samples:
            return False
        index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        return self._samples.is_of_types(index[0]) and all(one in (slice(None), Ellipsis) for one in index[1:])

    def _pick_in_front(self, node: Any) -> None:
        """Have the function of weights or attributes of all types be one of those that are picked of it.

        A function that reads others' is left as it is: it is refused later, here as where it is run.
        """
        made, given, waiting = set[Any](), dict[Any, None](), [node.args[0]]
        while waiting:
            one = waiting.pop()
            if one in self._samples:
                given[one] = None
            elif one not in self._constants and one not in made:
                made.add(one)
                waiting += one.all_input_nodes
        if not all(self._samples.is_weights(one) or self._samples.is_attributes(one) for one in given):
            return
        front = picked_in_front(node, [one for one in self._nodes if one in made], list(given))
        place = self._nodes.index(node)
        self._nodes = [*self._nodes[:place], *front, *self._nodes[place:]]
        for one in front:
            self._read(one)


def _parameter(rows: str) -> str:
    """Return the name of a function's parameter for rows of a name."""
    return f"rows of {rows}"

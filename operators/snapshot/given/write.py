"""`freshet.write_snapshot`: a snapshot folder of what people have in Python."""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from freshet.files.whole import LEFT_BEHIND, sync_folder, sync_tree
from freshet.operators.snapshot.given import frames, pyg
from freshet.operators.snapshot.given.columns import refuse
from freshet.operators.snapshot.given.graph import GivenEdges, GivenGraph, GivenVertices, graph_of
from freshet.operators.snapshot.writer import write_tables

_FILES = frozenset({"vertices.parquet", "edges.parquet", "snapshot.json"})
_COLUMNS = tuple(dict.fromkeys((*frames.OF_VERTICES, *frames.OF_EDGES)))


@dataclass(frozen=True)
class WrittenSnapshot(os.PathLike[str]):
    """A snapshot that was written; options and functions take it as the path of its folder.

    `features`: their width by kind of vertices, "" where there is one kind alone; `kinds` and `relations`: how many
    vertices and edges there are by kind and by relation.
    """

    folder: Path
    vertices: int
    edges: int
    features: Mapping[str, int]
    kinds: Mapping[str, int]
    relations: Mapping[tuple[str, str, str], int]
    edge_columns: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        rows = "".join(f"\n  {name:<28} {count:>12,}  {more}".rstrip() for name, count, more in self._rows())
        return f"Snapshot in {self.folder}{rows}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(name)}</td><td>{count:,}</td><td>{escape(more)}</td></tr>"
            for name, count, more in self._rows()
        )
        return f"<div><b>Snapshot</b> in <code>{escape(str(self.folder))}</code><table>{rows}</table></div>"

    def _rows(self) -> Iterator[tuple[str, int, str]]:
        for kind, count in self.kinds.items():
            yield f"vertices {kind}".rstrip(), count, f"features: {self.features[kind]}"
        extra = [name for name in self.edge_columns if name in ("weight", "attr", "key", "ts")]
        extra = extra if len(self.relations) == 1 else []  # else they are not those of all
        for relation, count in self.relations.items():
            yield f"edges {' '.join(filter(None, relation))}".rstrip(), count, ", ".join(extra)
        if not self.relations:
            yield "edges", 0, ""


def write_snapshot(
    data: Any = None,
    folder: str | os.PathLike[str] | None = None,
    ids: Any = None,
    *,
    vertices: Any = None,
    edges: Any = None,
    columns: Mapping[Any, Any] | None = None,
    edge_types: Sequence[str] | None = None,
    mirrors: Mapping[str, str] | None = None,
    edge_keys: bool | None = None,
    overwrite: bool = False,
) -> WrittenSnapshot:
    """Write a snapshot folder, from which `freshet run` and `freshet embed` start.

    `data` is a Data or HeteroData object of PyTorch Geometric, or frames as a pair (vertices, edges). Frames are of
    pandas or polars, or Arrow tables. For vertices of several kinds give a mapping of frames by kind, and one of frames
    by relation: (source kind, type, target kind), or the type alone.

    Of PyTorch Geometric: `x` are features, `y` labels where they are numbers of classes, `edge_weight` weights and
    `edge_attr` attributes of edges. Without `edge_weight`, an `edge_attr` of one dimension is the weight. Edges that
    repeat a source and target count each, as they do there.

    Nothing is written unless all of it can be read again; then the folder appears in one step.

    Args:
        data: the graph.
        folder: folder to write, new or empty.
        ids: ids of the vertices of `data`, int64 or strings, by kind for HeteroData; their numbers where None.
        vertices: frame with columns id and x, optionally label and kind; instead of `data`.
        edges: frame with columns src and dst, optionally weight, type, attr, key, ts, src_kind and dst_kind.
        columns: names in the frames (of attributes in `data`) by the names of a snapshot: `{"src": "payer"}`. Several
            columns of numbers make up features: `{"x": ["age", "income"]}`. None leaves a column out. For kinds, names
            of one frame alone stand in a mapping by its kind or relation.
        edge_types: names of the numbers in `edge_type` of Data, as in `export_model`.
        mirrors: relations of HeteroData that follow others by themselves, as in `export_model`, by default all rev_X;
            they are left out.
        edge_keys: whether edges that repeat one before them count each. Else the last one holds, with a warning. None:
            only for `data`.
        overwrite: replace a snapshot that is there.

    Raises:
        SnapshotError: what was given can't be a snapshot; the message names the column and the row.
    """
    columns = {} if columns is None else frames.mapping_of(columns)
    if folder is None:
        refuse("folder: missing; give the folder to write", "folder")
    target = Path(folder)
    _refuse_used(target, overwrite)
    if isinstance(data, tuple) and len(data) == 2 and vertices is None and edges is None:
        data, (vertices, edges) = None, data
    if data is None:
        for name, value in (("ids", ids), ("edge_types", edge_types), ("mirrors", mirrors)):
            if value is not None:
                refuse(f"{name}: goes with data of PyTorch Geometric; leave it out", name)
        parts = _of_frames(vertices, edges, columns)
        keep = bool(edge_keys)
    elif vertices is not None or edges is not None:
        refuse("data: goes without vertices and edges; leave one of both out", "data")
    else:
        parts = _of_data(data, ids, columns, edge_types, mirrors)
        keep = edge_keys is not False
    graph = graph_of(*parts, keep)
    for remark in graph.remarks:
        if not remark.endswith("have keys"):
            warnings.warn(remark, stacklevel=2)
    _write(target, graph)
    kinds = {name: count for name, (count, _) in graph.kinds.items()}
    features = {name: width for name, (_, width) in graph.kinds.items()}
    counts = graph.vertices.num_rows, graph.edges.num_rows
    names, remarks = tuple(graph.edges.column_names), tuple(graph.remarks)
    return WrittenSnapshot(target, *counts, features, kinds, graph.relations, names, remarks)


def _of_data(
    data: Any, ids: Any, columns: Mapping[Any, Any], edge_types: Sequence[str] | None, mirrors: Mapping[str, str] | None
) -> tuple[list[GivenVertices], list[GivenEdges]]:
    frames.refuse_unknown(columns, ("x", "label", "weight", "attr", "type"))
    if pyg.is_hetero_data(data):
        return _of_hetero_data(data, ids, columns, mirrors)
    if not pyg.is_data(data):
        refuse(
            f"data: expected Data or HeteroData of PyTorch Geometric, or a pair of frames (vertices, edges), got "
            f"{type(data).__name__}",
            "data",
        )
    if mirrors is not None:
        refuse("mirrors: goes with HeteroData; leave it out", "mirrors")
    nodes = pyg.nodes_of(data, "", ids, columns)
    _warn_of_labels(data, "y", columns)
    return [nodes], [pyg.links_of(data, "", (nodes.ids, nodes.ids), columns, edge_types)]


def _of_hetero_data(
    data: Any, ids: Any, columns: Mapping[str, Any], mirrors: Mapping[str, str] | None
) -> tuple[list[GivenVertices], list[GivenEdges]]:
    if ids is not None and not isinstance(ids, Mapping):
        refuse("ids: expected a mapping by kind of vertices, as the data has several", "ids")
    if unknown := [name for name in ids or () if name not in data.node_types]:
        refuse(f"ids: {unknown[0]!r}: no kind of the data, which has {', '.join(data.node_types)}", "ids")
    of_kind = {
        kind: pyg.nodes_of(data[kind], f"{kind}.", (ids or {}).get(kind), _known(data[kind], columns), kind)
        for kind in data.node_types
    }
    for kind in data.node_types:
        _warn_of_labels(data[kind], f"{kind}.y", columns)
    left = set(pyg.mirrored(data, mirrors))
    relations = [one for one in data.edge_types if one not in left]
    edges = [
        pyg.links_of(
            data[one],
            f"{','.join(one)}.",
            (of_kind[one[0]].ids, of_kind[one[2]].ids),
            _known(data[one], columns),
            relation=one,
        )
        for one in relations
    ]
    return list(of_kind.values()), edges


def _known(store: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The names of those attributes that a storage of several has."""
    return {name: of for name, of in columns.items() if of is None or of in store}


def _warn_of_labels(store: Any, name: str, columns: Mapping[str, Any]) -> None:
    if pyg.float_labels(store, columns):
        warnings.warn(f"{name} is left out: labels of a snapshot are numbers of classes", stacklevel=4)


def _of_frames(vertices: Any, edges: Any, columns: Mapping[Any, Any]) -> tuple[list[GivenVertices], list[GivenEdges]]:
    for name, given in (("vertices", vertices), ("edges", edges)):
        if given is None:
            refuse(f"{name}: missing; give a frame, or data of PyTorch Geometric", name)
    nested = {name: dict(of) for name, of in columns.items() if isinstance(of, Mapping)}
    flat = {name: of for name, of in columns.items() if name not in nested}
    frames.refuse_unknown(flat, _COLUMNS)
    of_kinds, of_relations = dict(frames.by_name(vertices, "vertices")), dict(frames.by_name(edges, "edges"))
    for name, own in nested.items():
        if name not in of_kinds and name not in of_relations:
            refuse(f"columns: {name!r}: expected a kind or a relation that has a frame", "columns")
        frames.refuse_unknown(own, frames.OF_VERTICES if name in of_kinds else frames.OF_EDGES)
    made: tuple[list[GivenVertices], list[GivenEdges]] = [], []
    for kind, given in of_kinds.items():
        frame = frames.Frame(given, "vertices" if kind is None else f"vertices of {kind}")
        named = flat | nested.get(kind, {})
        made[0].append(frames.vertices_of(frame, named, kind))
        _warn_of_rest(frame, named, frames.OF_VERTICES)
    for relation, given in of_relations.items():
        triple = None if relation is None else _triple(relation)
        frame = frames.Frame(given, "edges" if triple is None else f"edges of {' '.join(filter(None, triple))}")
        named = flat | nested.get(relation, {})
        made[1].append(frames.edges_of(frame, named, triple))
        _warn_of_rest(frame, named, frames.OF_EDGES)
    return made


def _triple(relation: Any) -> tuple[str, str, str]:
    if isinstance(relation, str) and relation:
        return "", relation, ""
    if isinstance(relation, tuple) and len(relation) == 3 and all(isinstance(one, str) and one for one in relation):
        return relation
    refuse(f"edges: expected frames by (source kind, type, target kind), or by type, got {relation!r}", "edges")


def _warn_of_rest(frame: frames.Frame, columns: Mapping[Any, Any], known: Sequence[str]) -> None:
    if rest := frames.left_out(frame, columns, known):
        warnings.warn(f"{frame.where}: {', '.join(rest)}: left out, no columns of a snapshot", stacklevel=4)


def _refuse_used(folder: Path, overwrite: bool) -> None:
    if folder.is_file() or (folder.is_symlink() and not folder.exists()):
        refuse(f"folder {folder}: a file; expected a folder, new or empty", "folder")
    there = {one.name for one in folder.iterdir()} if folder.is_dir() else set()
    if not there:
        return
    if not overwrite:
        refuse(f"folder {folder}: has files in it; give another one, or overwrite=True to replace a snapshot", "folder")
    if others := sorted(there - _FILES):
        refuse(f"folder {folder}: {others[0]} is no file of a snapshot; give another folder", "folder")


def _write(folder: Path, graph: GivenGraph) -> None:
    """Write the folder aside, and put it in its place."""
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _aside(folder) as made, _aside(folder) as old:
        made.mkdir()
        write_tables(made, graph.vertices, graph.edges)
        sync_tree(made)
        if folder.exists() and any(folder.iterdir()):
            folder.rename(old)
        made.replace(folder)
        sync_folder(folder.parent)


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """Yield a folder beside another one, which is removed in the end."""
    aside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}{LEFT_BEHIND}")
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)

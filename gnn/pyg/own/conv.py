"""A conv of the user's own becomes steps: it is read as it runs, or a layer that was written stands in its place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import islice, product
from typing import Any

import numpy as np

from freshet.gnn.layers.own.own_layer import declared
from freshet.gnn.own.loading import LayersError, layer_class
from freshet.gnn.own.running import WrittenLayerError
from freshet.gnn.pyg.encoded_conv import EncodedConv, FunctionOfEdges
from freshet.gnn.pyg.errors import OUT_EDGES, PER_EDGE, RECORDED, refuse
from freshet.gnn.pyg.forward.parameters import EDGE_NAMES, WEIGHT_NAMES, is_no_weight
from freshet.gnn.pyg.own.lines import steps_of
from freshet.gnn.pyg.own.parts import ConvParts, parts_of
from freshet.gnn.pyg.own.program import relation_layer
from freshet.gnn.pyg.own.running import ConvWidths, fitting, read
from freshet.gnn.pyg.refusals import HOW_WIDE
from freshet.gnn.pyg.steps import (
    WIDTHS_OF_EDGES,
    ConvCall,
    Converted,
    ExportError,
    Step,
    attributes_of,
    check_conv,
    class_name,
    edge_width_of,
    reads_targets,
)

_MOST_TRIES = 1024
HOW_TO_WRITE = "docs/guide/own_layers.md says what is read, and how such a layer is written"


def opened_own(step: Step, width: int | None, *, begins: bool = True) -> list[Step]:
    """Return the steps of a conv that is read; `width` is that of the rows it reads, where known.

    `begins`: whether nothing before it says how wide its rows are.

    Raises: ExportError naming the place of what stops it, and what would work.
    """
    name = _conv_name(step)
    try:
        check_conv(step)
        given = _given(step)
        failures = list[str]()
        if width is None and (width := input_width(step, failures.append)) is None:
            msg = f"{step.name}: the width of the rows that {name} reads is unknown; {HOW_WIDE}"
            raise ExportError(msg + _first(failures))
        attr_width = 0 if given.attributes is None else _attr_width(step, given, width)
        value = read(step, given, ConvWidths(width, attr_width))
        return steps_of(step.name, value, begins=begins)
    except ExportError as error:
        if error.about == PER_EDGE:
            raise
        msg = f"{step.name}: {name} is not supported: {error}. {HOW_TO_WRITE}"
        counts_out = isinstance(step.op, FunctionOfEdges) and error.about == OUT_EDGES
        raise ExportError(msg).of(OUT_EDGES if counts_out else _about(step)) from error


def relation_conv_of(where: str, step: Step, source: int | None, target: int | None) -> Converted:
    """Return the message_conv that a conv on a relation is, and its weights; `where` names both.

    `source` and `target` are the widths of the rows that it reads, where known.

    Raises: ExportError naming the place of what stops it, and what would work.
    """
    name = _conv_name(step)
    try:
        check_conv(step)
        widths = run_widths(step, source, target)
        return relation_layer(step.name, read(step, _given(step), widths), widths)
    except (ExportError, ValueError) as error:
        msg = f"{where}: {name} is not supported: {error}. docs/guide/own_layers.md says what is read"
        raise ExportError(msg).of(_about(step)) from error


def parts_between(step: Step, source: int, target: int) -> ConvParts:
    """Return a conv between two kinds that has several aggregates as a conv for each; widths are those of its rows.

    Raises: ExportError naming the place of what stops it.
    """
    widths = run_widths(step, source, target)
    return parts_of(step.name, read(step, _given(step), widths), widths)


def _conv_name(step: Step) -> str:
    """Return the name of the class of a conv, with functions of what its edges have in front of it or not."""
    if isinstance(step.op, FunctionOfEdges):
        return "a function of rows and edges"
    op = step.op.conv if isinstance(step.op, EncodedConv) else step.op
    return class_name(op).rsplit(".", 1)[1]


def _about(step: Step) -> str:
    return RECORDED if isinstance(step.op, EncodedConv) else ""


def run_widths(step: Step, source: int | None, target: int | None) -> ConvWidths:
    """Return widths of rows and attributes with which a conv on a relation runs, those of rows as far as known.

    Raises: ExportError where it runs with none, or with attributes of several widths.
    """
    given, failures = _given(step), list[str]()
    found = next(fitting(step, given, _ends(step, given, source, target), failures.append), None)
    if found is None:
        known = source is not None and (target is not None or not given.two_kinds)
        hint = "" if known else "the width of the rows that it reads is unknown; give features={kind: width} "
        refuse(f"{step.name}: {hint}{_first(failures).strip(' ()')}")
    if given.attributes is None:
        return found
    return found._replace(attributes=_attr_width(step, given, found.rows, found.target))


def end_widths(step: Step) -> tuple[int | None, int | None]:
    """Return the widths of the rows of sources and targets that a conv on a relation reads; None where any will do.

    Raises: ExportError where it runs with none.
    """
    given, failures = _given(step), list[str]()
    found = next(fitting(step, given, _ends(step, given, None, None), failures.append), None)
    if found is None:
        refuse(f"{step.name}: {class_name(step.op)} cannot be run on a small graph{_first(failures)}")
    if isinstance(step.op, FunctionOfEdges) and step.op.reads_both_ends:
        return None, None
    if isinstance(step.op, FunctionOfEdges):  # whose parts may read other numbers
        return _only(step, given, found, "rows"), _only(step, given, found, "target" if given.two_kinds else "rows")
    source = None if any(fitting(step, given, [found._replace(rows=found.rows + 1)])) else found.rows
    if not given.two_kinds:
        return source, source
    target = None if any(fitting(step, given, [found._replace(target=found.target + 1)])) else found.target
    return source, target


def _only(step: Step, given: ConvCall, found: ConvWidths, end: str) -> int | None:
    """Return the one width of rows of an end with which a function runs; None where it runs with several."""
    tried = (found._replace(**{end: width}) for width in range(1, _MOST_TRIES + 1))
    fits = list(islice(fitting(step, given, tried), 2))
    return getattr(fits[0], end) if len(fits) == 1 else None


def _ends(step: Step, given: ConvCall, source: int | None, target: int | None) -> list[ConvWidths]:
    """Return widths that the rows of both ends may have, the likeliest first."""
    widths = _widths(step) or [1]  # where nothing says one, any will do
    sources, targets = (widths if one is None else [one] for one in (source, target))
    targets = targets if given.two_kinds else [0]
    attrs = [0] if given.attributes is None else _attr_widths(step)
    places = sorted(product(range(len(sources)), range(len(targets))), key=max)
    ends = ((sources[i], targets[j]) for i, j in places)
    return [ConvWidths(s, attr, t) for (s, t), attr in islice(product(ends, attrs), _MOST_TRIES)]


def _given(step: Step) -> ConvCall:
    """Return how a conv is called: as a forward calls it, else by the names of its parameters."""
    if step.given is not None:
        return step.given._replace(categories=step.categories)
    names = list(inspect.signature(step.op.forward).parameters)  # type: ignore[union-attr]
    if len(names) < 2:
        refuse(f"{step.name}: its forward takes ({', '.join(names)}), expected (x, edge_index)")
    found = call_by_names(step.op)
    attributes, weights = found.attributes if step.attributes else None, found.weights if step.edge_weights else None
    return found._replace(attributes=attributes, weights=weights, categories=step.categories)


def call_by_names(conv: Any) -> ConvCall:
    """Return how a conv that is read is called, by the names of its parameters, with all that it takes of edges."""
    parameters, attributes = list(inspect.signature(conv.forward).parameters.values()), attributes_of(conv)
    names = [p.name for p in parameters]
    edges = next((name for name in EDGE_NAMES if name in names), names[1])
    needed = [p.name for p in parameters[1:] if p.default is p.empty and p.name not in (edges, attributes)]
    weights = [name for name in WEIGHT_NAMES if name in names and name != attributes]
    weights += [name for name in needed[:1] if not is_no_weight(name)]  # as a forward's third parameter
    constants = {name: None for name in needed if name == "size"}
    return ConvCall(names[0], edges, next(iter(weights), None), attributes, constants)


def _first(failures: Sequence[str]) -> str:
    """Say how a conv failed with the likeliest widths, or by something else than these; empty where it did not."""
    others = [one for one in failures if "shapes cannot be multiplied" not in one]
    return f" ({(others or failures)[0]})" if failures else ""


def input_width(step: Step, failed: Callable[[str], object] = lambda _: None) -> int | None:
    """Return the width of the rows that a conv reads, as its parts say it; None where none of them does.

    `failed` gets the error that the conv raises with other widths.
    """
    given, widths = _given(step), _widths(step)
    attrs = [0] if given.attributes is None else _attr_widths(step)
    pairs = (ConvWidths(*one) for one in islice(product(widths, attrs), _MOST_TRIES))
    found = (one.rows for one in fitting(step, given, pairs, failed))
    if isinstance(step.op, FunctionOfEdges):  # whose parts may read other numbers
        fits = set(islice(found, 2))
        return fits.pop() if len(fits) == 1 else None
    return next(found, None)


def _widths(step: Step) -> list[int]:
    """Return widths that a conv's rows may have, the likeliest first."""
    conv: Any = step.op
    if isinstance(conv, FunctionOfEdges):
        of_parts = [getattr(part, name, 0) for part in conv.modules() for name in ("in_features", "in_channels")]
        likely = [one for one in of_parts if isinstance(one, int) and one > 0]
        return list(dict.fromkeys([*likely, *range(1, _MOST_TRIES + 1)]))
    said = getattr(conv, "in_channels", None) or getattr(conv, "channels", None)  # the latter: CGConv
    kept = list(said) if isinstance(said, tuple | list) else [said]
    kept += [getattr(part, name, None) for part in conv.modules() for name in ("in_features", "in_channels")]
    found = [one for one in kept if isinstance(one, int) and one > 0]
    largest = max(found + [n for one in (*conv.parameters(), *conv.buffers()) for n in one.shape], default=0)
    return list(dict.fromkeys([*found, *range(1, min(largest, _MOST_TRIES) + 1)]))


def _attr_widths(step: Step) -> list[int]:
    """Return widths that the attributes of edges may have; only the one that is said, if it is."""
    return _said_widths(step) or list(dict.fromkeys([1, *_widths(step)]))


def _said_widths(step: Step) -> list[int]:
    """Return the width of the attributes of edges that export_model is given, or those that the conv keeps."""
    conv: Any = step.op
    if step.edge_width:
        return [step.edge_width]
    reads = conv.conv if isinstance(conv, EncodedConv) and conv.hands_attributes else conv
    kept = [edge_width_of(reads), *(getattr(reads, name, None) for name in WIDTHS_OF_EDGES)]
    return [one for one in dict.fromkeys(kept) if isinstance(one, int) and one > 0]


def _attr_width(step: Step, given: ConvCall, width: int, target: int = 0) -> int:
    """Return how wide the attributes of edges are that a conv reads; `target`: see ConvWidths.

    Raises: ExportError where several widths will do, or none.
    """
    failures, widths = list[str](), _attr_widths(step)
    if not _said_widths(step):  # others than those that its parts have may do as well
        widths = [*widths, max(widths) + 1]
    pairs = [ConvWidths(width, attr, target) for attr in widths]
    found = [one.attributes for one in fitting(step, given, pairs, failures.append)]
    if len(found) == 1:
        return found[0]
    what = f"may be {' or '.join(map(str, sorted(found)[:5]))} wide" if found else "have a width that none of it says"
    msg = f"{step.name}: the attributes of edges that it reads {what}; give export_model edge_features=N"
    if step.edge_width:
        msg = f"{step.name} does not run with edge_features={step.edge_width} and one tensor of rows x"
    raise ExportError(msg + ("" if found else _first(failures)))


def convert_written(step: Step, code: str, width: int | None) -> Converted:
    """Return the declaration of the written layer that stands for a module, and its weights.

    Raises: ExportError naming what is missing, or what the layer's functions say.
    """
    module = step.op
    channels = getattr(module, "in_channels", width)
    if channels is None:
        channels = input_width(step)
    if not isinstance(channels, int) or channels < 1:
        refuse(f"{step.name}: {code} reads rows of unknown width; give the module in_channels, or {HOW_WIDE}")
    edges = 0
    if "attr" in _reads(step.name, step, code):
        edges = edge_width_of(module) or 0
        if not edges:
            refuse(f"{step.name}: {code}.message reads attributes of unknown width; give the module edge_dim")
    return _declared(step.name, step, code, in_channels=channels, edge_channels=edges)


def written_relation(where: str, step: Step, code: str, source: int | None, target: int | None) -> Converted:
    """Return the declaration of the written layer that stands for a conv on a relation, and its weights.

    `source` and `target` are the widths of the rows that it reads, where known; `where` names conv and relation.

    Raises: ExportError naming what is missing, or what the layer's functions say.
    """
    reads = _reads(where, step, code)
    try:
        rows, attributes, of_target = run_widths(step, source, target)
    except ExportError as error:
        msg = f"{where}, in whose place {code} stands: {error}"
        raise ExportError(msg) from error
    attributes = attributes if "attr" in reads else 0
    if "attr" in reads and not attributes:
        refuse(f"{where}: {code}.message reads attributes of edges, and the module is handed none")
    other = None if of_target in (0, rows) else of_target
    sizes = {"in_channels": rows, "target_channels": other if reads_targets(code) else 0}
    return _declared(where, step, code, **sizes, edge_channels=attributes)


def _reads(where: str, step: Step, code: str) -> tuple[str, ...]:
    """Return the names of what messages read.

    Raises: ExportError where that is a weight, of which the module is handed none.
    """
    reads = layer_class(code, None).reads_of("message")
    if "weight" in reads and not step.edge_weights:
        refuse(f"{where}: {code}.message reads the weight of an edge, and the module is handed none")
    return reads


def _declared(where: str, step: Step, code: str, **widths: Any) -> Converted:
    layer = layer_class(code, None)
    try:
        weights = {name: np.array(weight, np.float32) for name, weight in layer.weights_of(step.op).items()}
        spec = declared(code, weights, **widths, **layer.options_of(step.op))
    except (LayersError, WrittenLayerError, ValueError) as error:
        msg = f"{where}: {error}"
        raise ExportError(msg) from error
    return spec, weights

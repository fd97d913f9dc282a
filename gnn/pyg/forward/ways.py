"""The ways in which a forward may be called, by its parameters and the Data within its reach."""

from __future__ import annotations

import inspect

from torch.nn import Module

from freshet.gnn.pyg.errors import UNREAD, ExportError, refuse
from freshet.gnn.pyg.forward.asked import Asked
from freshet.gnn.pyg.forward.categories import EdgeCategories
from freshet.gnn.pyg.forward.held import HeldData, data_of, field_read
from freshet.gnn.pyg.forward.parameters import (
    STANDARD,
    WEIGHT_NAMES,
    Parameters,
    edge_parameter,
    is_rest,
    rows_by_name,
    takes_data,
    takes_no_edges,
    takes_nothing,
    ways_of,
    ways_of_data,
)
from freshet.gnn.pyg.forward.sampled import OF_SAMPLES
from freshet.gnn.pyg.forward.type_columns import TypeColumns
from freshet.gnn.pyg.steps import ATTRIBUTE_NAMES


def ways_to_call(
    module: Module, name: str, parameters: list[inspect.Parameter], asked: Asked
) -> tuple[list[Parameters], list[inspect.Parameter]]:
    """The ways in which a forward may be called, the likeliest first, and its parameters beside rows and edges.

    Raises: ExportError where there is none.
    """
    if takes_data(parameters):
        return _of_categories(ways_of_data(), asked.categories), []
    held, read = bool(data_of(module)), field_read(getattr(module, asked.method))
    if held and takes_nothing(parameters):
        return [one._replace(held=HeldData()) for one in ways_of_data()], []
    if held and read and takes_no_edges(parameters):
        ways = ways_of(module, name, None, parameters[1:], recorded=asked.recorded)
        return [one._replace(takes_edges=False, held=HeldData(parameters[0].name)) for one in ways], parameters[1:]
    if (by_name := rows_by_name(name, parameters, asked.columns)) is not None:
        rows, named, more = by_name
        return [one._replace(rows=rows) for one in ways_of(module, name, named, more, recorded=asked.recorded)], more
    if is_rest(parameters):
        return [Parameters()], []
    try:
        edges, more = edge_parameter(name, parameters)
    except ExportError as error:
        if read and not held:
            refuse(f"{error}. {read} is read, and is no field of a Data of torch_geometric")
        raise
    if asked.types is not None:
        return _ways_with_types(name, edges, more, asked.types), more
    if asked.categories is not None:
        return _of_categories(_ways_with_types(name, edges, more, None), asked.categories), more
    ways = ways_of(module, name, edges, more, recorded=asked.recorded)
    return ways + [one._replace(held=HeldData(parameters[0].name)) for one in ways if held], more


def _of_categories(ways: list[Parameters], categories: EdgeCategories | None) -> list[Parameters]:
    """Return those of some ways that hand over attributes, which number categories; without `categories` all."""
    if categories is None:
        return ways
    found = [one for one in ways if one.attributes is not None and one.shapes == STANDARD]
    if not found:
        raise ExportError("its forward is called without attributes of edges, so these are no categories").of(UNREAD)
    return [one._replace(categories=categories) for one in found[:1]]


def _ways_with_types(
    name: str, edges: str | None, more: list[inspect.Parameter], types: TypeColumns | None
) -> list[Parameters]:
    """The ways in which a forward that takes the types of edges may be called: with their other attributes, or without.

    Raises: ExportError where it needs more.
    """
    others = [p for p in more if types is None or p.name != types.parameter]
    attributes = next((p for p in others if p.name in ATTRIBUTE_NAMES), None)
    weights = next((p for p in others if p.name in WEIGHT_NAMES and p is not attributes), None)
    sampled = tuple(p.name for p in others if p.name in OF_SAMPLES and p.default is p.empty)
    needed = [p.name for p in others if p.default is p.empty and p not in (attributes, weights)]
    if needed := [one for one in needed if one not in sampled]:
        refuse(f"{name} needs {', '.join(needed)}, expected (x, edge_index, edge_type[, edge_attr][, edge_weight])")
    how = Parameters(edges, None if weights is None else weights.name, of_sample=sampled, types=types)
    if attributes is None:
        return [how]
    with_both = how._replace(attributes=attributes.name)
    return [with_both] if attributes.default is attributes.empty else [with_both, how]

"""Three kinds of vertices whose relations share a name, have attributes, and mirrors."""

from __future__ import annotations

from freshet.gnn.kinds.model import KindsModel
from freshet.kinds import NO_MIRROR, Kinds, Relation
from tests.support.graphs.kinds import Spec, hetero, kinds_model, relation, sage, sage_everywhere

KINDS = Kinds(
    ("user", "item", "shop"),
    (2, 3, 2),
    (
        Relation(0, "buys", 1, edge_width=2),
        Relation(1, "rev_buys", 0, edge_width=2, mirrors=0),
        Relation(0, "rates", 1, edge_width=1),
        Relation(0, "rates", 2),
        Relation(2, "rates", 1),
        Relation(0, "knows", 0),
        Relation(2, "near", 2),
        Relation(2, "near_too", 2, mirrors=6),
    ),
)


def shop_model(seed: int) -> KindsModel:
    """Return a model of two layers that reads all relations, with their attributes, and returns items."""
    relations, first = list[Spec](), dict[int, Spec]()
    widths = dict(zip(KINDS.names, KINDS.widths, strict=True))
    for number, one in enumerate(KINDS.relations):
        source, name, target = KINDS.triple(one)
        mirrors = {} if one.mirrors == NO_MIRROR else {"mirrors": one.mirrors}
        relations.append(relation(source, name, target, edge_features=one.edge_width, **mirrors))
        first[number] = sage(widths[source], widths[target], 4)
        if one.edge_width:
            heads = {"heads": 2, "add_self_loops": False, "edge_channels": one.edge_width}
            first[number] |= {"type": "gat_conv", **heads}
    second = sage_everywhere(dict.fromkeys(widths, 4), 3, relations)
    return kinds_model([hetero(first), second], ["item"], widths, relations, seed)

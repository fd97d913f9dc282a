"""Three kinds of vertices whose relations share a name, have attributes, and mirrors."""

from __future__ import annotations

from freshet.kinds import Kinds, Relation

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

"""Turns MathOverflow into a graph of users and months that forgets: `python scripts/forum/stream.py FOLDER`.

Users answer questions of users, comment on these, and reply to answers; a user is active in a month. An edge goes a
year after it was last made. Writes FOLDER/snapshot, the graph when 2014 begins, FOLDER/events.jsonl, the year 2014, and
FOLDER/truth.parquet: who joined when, and who answers within ninety days after either end of the year. Reads the data
set `mathoverflow` from the folder that FRESHET_DATA names (--data). Users and months have ids that both begin with 0.
"""

from __future__ import annotations

import argparse
import datetime
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.operators.snapshot.writer import write_snapshot

DAY_MS = 86_400_000
LIVES_MS, AHEAD_MS, MONTH_MS = 365 * DAY_MS, 90 * DAY_MS, 30 * DAY_MS
TYPES = ("answers", "comments", "replies")  # in the order of the data set's numbers
ACTIVE = "active_in"
USER, MONTH = "user", "month"
WIDTHS = {USER: 2, MONTH: 4}
NO_TIME = np.iinfo(np.int64).max


class Posts(NamedTuple):
    """Reactions of users to others, in the order of time; (n,) int64 each."""

    at_ms: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    type: np.ndarray


def year_ms(year: int) -> int:
    """The begin of a year, in milliseconds since 1970."""
    return int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp()) * 1000


FIRST_MS, CUT_MS, END_MS = year_ms(2009), year_ms(2014), year_ms(2015)
TIMES = {"answers_2014": CUT_MS, "answers_2015": END_MS}  # columns of the truth


def read_posts(data: Path) -> Posts:
    """Read the data set without what users wrote to themselves."""
    table = pq.read_table(data / "mathoverflow" / "events.parquet", columns=["ts", "src", "dst", "etype"])
    columns = [table[name].to_numpy().astype(np.int64) for name in ("ts", "src", "dst", "etype")]
    others = columns[1] != columns[2]
    return Posts(*(column[others] for column in columns))


def joined_ms(posts: Posts) -> np.ndarray:
    """Return the time at which each user was first seen, (users,) int64."""
    first = np.full(int(max(posts.src.max(), posts.dst.max())) + 1, NO_TIME)
    for ends in (posts.src, posts.dst):
        np.minimum.at(first, ends, posts.at_ms)
    return first


def answering(posts: Posts, at_ms: int) -> np.ndarray:
    """The users who answer a question within ninety days after this time."""
    soon = (posts.type == 0) & (posts.at_ms >= at_ms) & (posts.at_ms < at_ms + AHEAD_MS)
    return np.unique(posts.src[soon])


def user_x(joined: int) -> list[float]:
    """Features of a user: one, and the years from 2009 on at which it joined."""
    return [1.0, round((joined - FIRST_MS) / LIVES_MS, 4)]


def month_x(number: int) -> list[float]:
    """Features of a month: one, its year, and its place in the year."""
    angle = 2 * np.pi * (number % 12.17) / 12.17
    return [1.0, round(number / 12.17, 4), round(float(np.sin(angle)), 4), round(float(np.cos(angle)), 4)]


def history(posts: Posts) -> list[dict[str, Any]]:
    """All events up to the end of 2014, in the order of time."""
    told: list[tuple[int, int, dict[str, Any]]] = []  # time, tie, event
    known: set[tuple[str, int]] = set()

    def tell(at_ms: int, **event: Any) -> None:
        told.append((at_ms, len(told), event | {"ts": at_ms}))

    def born(at_ms: int, kind: str, vertex: int, x: list[float]) -> None:
        if (kind, vertex) not in known:
            known.add((kind, vertex))
            tell(at_ms, op="add_vertex", id=vertex, kind=kind, x=x)

    made: dict[tuple[str, int, int], list[int]] = {}
    for at, src, dst, kind in zip(*(column.tolist() for column in posts), strict=True):
        if at >= END_MS:
            break
        month = (at - FIRST_MS) // MONTH_MS
        for user in (src, dst):
            born(at, USER, user, user_x(at))
        born(at, MONTH, month, month_x(month))
        for name, a, b in ((TYPES[kind], src, dst), (ACTIVE, src, month)):
            times = made.setdefault((name, a, b), [])
            if not times or at - times[-1] > LIVES_MS:
                tell(at, op="add_edge", src=a, dst=b, type=name)
            times.append(at)
    for (name, src, dst), times in made.items():
        for this, following in zip(times, [*times[1:], NO_TIME], strict=True):
            if this + LIVES_MS < min(following, END_MS):
                tell(this + LIVES_MS, op="del_edge", src=src, dst=dst, type=name)
    return [event for _, _, event in sorted(told, key=lambda one: one[:2])]


def write_inputs(folder: Path, posts: Posts) -> dict[str, int]:
    """Write the snapshot, the events and the truth; returns counts."""
    every = history(posts)
    cut = next(k for k, event in enumerate(every) if event["ts"] >= CUT_MS)
    vertices = {(event["kind"], event["id"]): event["x"] for event in every[:cut] if event["op"] == "add_vertex"}
    edges: dict[tuple[str, int, int], None] = {}
    for event in every[:cut]:
        if event["op"] == "add_edge":
            edges[event["type"], event["src"], event["dst"]] = None
        elif event["op"] == "del_edge":
            edges.pop((event["type"], event["src"], event["dst"]), None)
    names, src, dst = [key[0] for key in edges], [key[1] for key in edges], [key[2] for key in edges]
    x = [np.array(row, np.float32) for row in vertices.values()]
    ids, kinds = [vertex for _, vertex in vertices], [kind for kind, _ in vertices]
    write_snapshot(folder / "snapshot", ids, x, src, dst, edge_type=names, kinds=kinds)
    with (folder / "events.jsonl").open("wb") as file:
        file.writelines(orjson.dumps(event) + b"\n" for event in every[cut:])
    joined = joined_ms(posts)
    labels = {name: np.isin(np.arange(len(joined)), answering(posts, at)) for name, at in TIMES.items()}
    pq.write_table(pa.table({"id": np.arange(len(joined)), "joined_ms": joined, **labels}), folder / "truth.parquet")
    return {"vertices": len(ids), "edges": len(edges), "events": len(every) - cut}


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=os.environ.get("FRESHET_DATA"), help="folder of the data sets")
    options = parser.parse_args()
    if options.data is None or not (options.data / "mathoverflow").is_dir():
        parser.error("--data: expected a folder with mathoverflow/events.parquet (or FRESHET_DATA)")
    options.folder.mkdir(parents=True, exist_ok=True)
    print(orjson.dumps(write_inputs(options.folder, read_posts(options.data))).decode())


if __name__ == "__main__":
    main()

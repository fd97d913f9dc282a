"""Rows of text: the Parser and the plain reader take the same events of them, whatever stands in them."""

from __future__ import annotations

import csv
import gzip
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.job.results.plain_kinds import PlainKindsRules
from freshet.job.results.plain_reader import file_records
from freshet.job.results.plain_rules import PlainRules
from freshet.kinds import Kinds, Relation
from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import list_files
from freshet.operators.parser.files import ChunkReader, plan_chunks
from freshet.operators.parser.keys import KeyRules
from freshet.partitioner.events import NO_TS, OP_NAMES, Events
from freshet.schema import Features

OPS = ("add_vertex", "set_features", "del_vertex", "add_edge", "del_edge", "", "ADD", 'a"b')
IDS = ("7", "-3", "0", "007", "-0", "+7", " 7", "7.0", "7.50", "1e3", "1_0", "u9", "ü", "99999999999999999999")
IDS += ("9223372036854775807", "9007199254740993.0", "*", "", "", "8", "8", "9")
NUMBERS = ("1", "0.5", "+2", " 3.5 ", "1.", ".5", "1e999", "1e3", "nan", "inf", "1_0", "0x1", "NA", "", "-", "1,5", "٣")
LISTS = (
    "[1, 2]",
    "[0.5 1.]",
    "1;2",
    "1 2",
    "[1,2",
    "[]",
    "[1,,2]",
    ",1",
    "[a, 2]",
    "[1,\n2]",
    "",
    "[nan 1]",
    "1",
    "[ 1 2 ]",
)
TIMES = (
    "5",
    "-7",
    "1700000000000",
    "05",
    "5.0",
    "2020-01-01",
    "2020-02-30",
    "2020-01-01 10:00",
    "2020-01-01T10:00:01.5Z",
)
TIMES += (
    "2020-01-01T10:00:01.123456789+01:00",
    "2020-01-01T10",
    "2020-1-1",
    "0000-01-01",
    "1999-12-31T23:59:60",
    "",
    "x",
)
TIMES += ("2020-01-01Z", "2020-01-01 10:00:00-0230", "2020-01-01T24:00:00", "9999-12-31T23:59:59-23:59")
NOTES = ("", 'say "hi"', "a,b", "two\nlines", "cr\rlf\r\n", "\tтаб", '"', "emoji 🎉")
FIELDS = {
    "op": OPS,
    "id": IDS,
    "src": IDS,
    "dst": IDS,
    "weight": NUMBERS,
    "x": LISTS,
    "ts": TIMES,
    "key": IDS,
    "note": NOTES,
}


def as_rows(events: Events) -> list[tuple[Any, ...]]:
    """What the Parser made, in the words of the plain reader."""
    found = []
    for row in range(len(events)):
        op, x_row = OP_NAMES[min(int(events.op[row]), 4)], int(events.x_row[row])
        a, b = (ids.slice(row, row + 1).to_list()[0] for ids in (events.a, events.b))
        x = tuple(events.x.row(x_row).tolist()) if x_row >= 0 else None
        ts = None if events.ts is None or events.ts[row] == NO_TS else int(events.ts[row])
        key = "*" if events.op[row] > 4 else events.key_of(row)
        edge = op.endswith("edge")
        found.append(
            (
                int(events.position[row]),
                op,
                a,
                b if edge else None,
                x,
                events.values.weight[row],
                ts,
                key if edge else None,
            )
        )
    return found


def by_parser(folder: Path, parser: Parser) -> tuple[list[tuple[Any, ...]], list[tuple[int, bytes, str]]]:
    rows, letters, reader = [], [], ChunkReader(every_column=parser.is_mapped, fields=parser.fields)
    for chunk in plan_chunks([str(folder)]):
        data = reader.read(chunk)
        events, found = parser.parse_chunk(chunk, data, whole=lambda chunk=chunk: reader.whole(chunk))
        rows += as_rows(events)
        letters += [(letter.offset, letter.raw, letter.error) for letter in found]
    return rows, letters


def by_plain_reader(folder: Path, rules: PlainRules) -> list[tuple[Any, ...]]:
    found = []
    for file in list_files([str(folder)]):
        for position, one, _ in file_records(file, rules):
            if one is not None:
                x = None if one.x is None else tuple(one.x.tolist())
                found.append((position, one.op, one.a, one.b, x, np.float32(one.values[0]), one.ts, one.key))
    return found


def written(rng: random.Random, names: list[str], rows: int, kind: str, odd: float) -> bytes:
    """Rows as somebody may write them, some of them odd in one or several fields."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t" if kind == "tsv" else ",", lineterminator=rng.choice(["\n", "\r\n"]))
    writer.writerow([f" {name} " if rng.random() < 0.2 else name for name in names])
    for _ in range(rows):
        edge = rng.random() < 0.6
        good = {"op": rng.choice(["add_edge", "del_edge"] if edge else OPS[:3]), "note": rng.choice(NOTES)}
        good |= {name: str(rng.randrange(20)) for name in (("src", "dst") if edge else ("id",))}
        good |= {"x": "[0.5 1]", "x_0": "0.5", "x_1": "1"} if not edge else {"weight": rng.choice(["0.25", "3", ""])}
        row = [rng.choice(FIELDS.get(name, NUMBERS)) if rng.random() < odd else good.get(name, "") for name in names]
        writer.writerow(row[: len(row) - (rng.random() < odd / 4)] + ["more"] * (rng.random() < odd / 8))
        if rng.random() < 0.05:
            text.write(rng.choice(["\n", "\r\n"]))
    data = text.getvalue().encode()
    return b"\xef\xbb\xbf" * rng.randrange(2) + (data.rstrip(b"\r\n") if rng.random() < 0.3 else data)


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize("id_kind", [None, "int", "string"])
def test_both_readers_take_the_same_events_of_any_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, id_kind: str | None
) -> None:
    accepted = rejected = 0
    for seed in range(12):
        rng = random.Random(f"{kind} {id_kind} {seed}")
        names = [name for name in FIELDS if name != "x" or seed % 3]
        names += [] if seed % 3 else ["x_0", "x_1"]
        names = ["op", *(name for name in rng.sample(names, len(names)) if name != "op" and rng.random() < 0.95)]
        monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", rng.choice([3, 17, 8000]))
        folder = tmp_path / str(seed)
        folder.mkdir()
        data = written(rng, names, 40, kind, rng.choice([0.0, 0.02, 0.3]))
        if seed % 10 == 9:
            data = data.replace(b"lines", b"\xff\xfe").replace(b"u9", b"\xfe")
        (folder / f"a.{kind}{'.gz' if seed % 2 else ''}").write_bytes(gzip.compress(data) if seed % 2 else data)
        keys = KeyRules("", rng.choice(["int", "string", ""]))
        fields = {name: name for name in names if not name.startswith(("x_", "note"))}
        fields |= {"x": "[x_0, x_1]"} if "x_0" in names else {}
        fields |= {"op": "`add_edge`"} if seed % 8 == 7 else {}
        events_map = fields if seed % 4 == 3 else None
        parser = Parser(Features(2), id_kind, events_map=events_map, keys=keys, cast_ids=id_kind == "string")
        rules = PlainRules(
            Features(2), id_kind, events_map=events_map, edge_keys=keys.kind or "", cast_ids=id_kind == "string"
        )
        found, letters = by_parser(folder, parser)
        assert repr(found) == repr(by_plain_reader(folder, rules)), seed
        accepted, rejected = accepted + len(found), rejected + len(letters)
        ends = [row for row in csv.reader(io.StringIO(data.decode("utf-8-sig", "surrogateescape"), newline=""),
                delimiter="\t" if kind == "tsv" else ",") if row][1:]  # fmt: skip
        assert sorted({row[0] - 1 for row in found} | {letter[0] for letter in letters}) == list(range(len(ends))), seed
        for offset, raw, _ in letters:
            text = raw.decode(errors="surrogateescape")
            assert (
                next(csv.reader(io.StringIO(text, newline=""), delimiter="\t" if kind == "tsv" else ","))
                == ends[offset]
            )
    assert accepted > 100 and rejected > 40


def test_rows_of_kinds_are_the_same_to_both_readers(tmp_path: Path) -> None:
    kinds = Kinds(("user", "item"), (2, 1), (Relation(0, "buys", 1), Relation(0, "knows", 0), Relation(1, "knows", 1)))
    features, rng, lines = Features.of_kinds(kinds), random.Random(5), ["op,kind,id,x,src,dst,type,src_kind,dst_kind"]
    for _ in range(400):
        one = [rng.choice(["user", "item", "", "shop"]), str(rng.randrange(9)), rng.choice(["[1]", "[1 2]", ""])]
        ends = [str(rng.randrange(9)), "7", rng.choice(["buys", "knows", "", "sells"])]
        ends += [rng.choice(["user", "item", ""]), rng.choice(["user", "item", ""])]
        edge = rng.random() < 0.5
        lines.append(",".join(["add_edge", "", "", "", *ends] if edge else ["add_vertex", *one, "", "", "", "", ""]))
    (tmp_path / "a.csv").write_text("\n".join(lines))
    parser, rules = Parser(features, "int"), PlainKindsRules(features, "int")
    (chunk,) = plan_chunks([str(tmp_path)])
    events, letters = parser.parse_chunk(chunk, ChunkReader(fields=parser.fields).read(chunk))
    plain = [
        (position, one) for position, one, _ in file_records(list_files([str(tmp_path)])[0], rules) if one is not None
    ]
    assert [position for position, _ in plain] == events.position.tolist()
    assert min(len(events), len(letters)) > 50 and len(events) + len(letters) == 400
    relations = [kinds.relation_names[k] for k in events.etype[events.op == OP_NAMES.index("add_edge")].tolist()]
    assert relations == [one.type for _, one in plain if one.op == "add_edge"]

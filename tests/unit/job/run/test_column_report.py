"""What is said of the columns of tables before a job reads a row, and tables that have no event."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from freshet.errors import UsageError
from freshet.job.kafka.client import ClientProperties
from freshet.job.run.column_guesses import proposed_map
from freshet.job.run.column_report import tell_columns
from freshet.job.run.first_events import decide_kinds, tell_other_ids
from freshet.job.run.sources import TopicReading, find_sources, plan_sources
from freshet.operators.parser.core import Parser
from freshet.operators.parser.event_files import list_files
from freshet.operators.parser.files import ChunkReader, plan_chunks
from freshet.operators.parser.keys import KeyRules
from freshet.schema import Features


def said(folder: Path, **options: Any) -> list[str]:
    lines: list[str] = []
    given = {"events_map": None, "id_kind": None} | options
    tell_columns(list_files([str(folder)]), Features(2), KeyRules(), say=lines.append, **given)
    return [line.replace(f"{folder}/", "") for line in lines]


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        said(folder, **options)
    return str(caught.value)


def test_columns_that_are_read_and_ignored_are_said_once_for_all_files(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("op,src,dst,id,x_0,x_1,weight,ts,note,\n")
    pq.write_table(pa.table({"op": ["add_vertex"], "id": [1]}), tmp_path / "c.parquet")
    (tmp_path / "d.jsonl").write_text("{}")
    assert said(tmp_path, id_kind="string") == [
        "a.csv and 1 more: columns src, dst, id (ids: strings), op (text), weight (number), ts (time), x_0 to x_1 (x, "
        "2 numbers); ignored: note: see --events-map",
        "c.parquet: columns id (ids), op (text)",
    ]
    assert "(ids: integers if the first are, else strings)" in said(tmp_path)[0]


def test_columns_of_folders_and_of_a_map(tmp_path: Path) -> None:
    (tmp_path / "day=1" / "op=add_edge").mkdir(parents=True)
    (tmp_path / "day=1" / "op=add_edge" / "a.csv").write_text("src,dst,w\n1,2,3\n")
    assert said(tmp_path)[0].endswith("(text); ignored: w, day: see --events-map")
    events_map = {"op": "op", "src": "src", "dst": "join('-', [src, dst])", "weight": "w"}
    found = said(tmp_path, events_map=events_map)[0].partition(": columns ")[2]
    assert found == "op (in op), src (in src, dst), dst (in dst), w (in weight); ignored: day"


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ("source,target", {"op": "`add_edge`", "src": "source", "dst": "target"}),
        (
            "Source,Target,amount,when",
            {"op": "`add_edge`", "src": "Source", "dst": "Target", "weight": "amount", "ts": "when"},
        ),
        ("src,dst,weight,ts", {"op": "`add_edge`", "src": "src", "dst": "dst", "weight": "weight", "ts": "ts"}),
        ("from node,to node", {"op": "`add_edge`", "src": '"from node"', "dst": '"to node"'}),
        ("nameOrig,nameDest,note", {"op": "`add_edge`", "src": "nameOrig", "dst": "nameDest"}),
        ("sorce,targte", {"op": "`add_edge`", "src": "sorce", "dst": "targte"}),
        ("p,q,r", {"op": "`add_edge`", "src": "p", "dst": "q"}),
        ("node_id,f0,f1,label", {"op": "`add_vertex`", "id": "node_id", "x": "[f0, f1]"}),
        ("op,user_id,item_id", {"op": "op", "src": "user_id", "dst": "item_id"}),
        ("it's,x", {"op": "`add_edge`", "src": '"it\'s"'}),
    ],
)
def test_a_table_without_events_is_refused_with_a_map_that_makes_some(
    tmp_path: Path, columns: str, wanted: dict[str, str]
) -> None:
    values = {"op": "add_edge", "when": "2024-01-01", "ts": "5", "x": "[1]"}
    row = ",".join(values.get(name, "7") for name in columns.split(","))
    (tmp_path / "a.csv").write_text(f"{columns}\n{row}\n")
    first, as_yaml, as_flag = refusal(tmp_path).split("\n")
    assert "a.csv: no row can be an event: no column " in first
    assert f"its columns are {', '.join(columns.split(','))}, by its first row" in first
    assert yaml.safe_load(as_yaml) == {"events_map": wanted}
    flag, given = shlex.split(as_flag.strip().removeprefix("or by "))
    assert (flag, yaml.safe_load(given)) == ("--events-map", wanted)
    if len(wanted) > 2:
        parser, (chunk,) = Parser(Features(2), events_map=wanted), plan_chunks([str(tmp_path)])
        events, letters = parser.parse_chunk(chunk, ChunkReader(every_column=True).read(chunk))
        assert (len(events), letters) == (1, [])


def test_what_is_perhaps_meant_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"op": ["add_edge"], "Src": [1], "target": [2]}), tmp_path / "a.parquet")
    why = "no column src, dst; its columns are op, Src, target; perhaps Src for src, target for dst; map them"
    assert why in refusal(tmp_path)
    assert proposed_map(["op", "Src", "target"]) == {"op": "op", "src": "Src", "dst": "target"}


def test_a_map_of_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,shop,kind\n1,2,3\n")
    edge = {"op": "`add_edge`", "src": "user", "dst": "shop"}
    for events_map, why in [
        (edge | {"src": "usr"}, "events_map: src: usr: no such column; its columns are user, shop, kind"),
        (edge | {"op": "action"}, "events_map: op: action: no such column"),
        ({"op": "`add_vertex`", "x": "[user]"}, "events_map: id: missing"),
        ([{"when": "kind == 'a'"}, edge | {"dst": "a.b"}], "events_map: dst: a.b: no such column"),
    ]:
        assert why in refusal(tmp_path, events_map=events_map)
    for events_map in (
        edge | {"dst": "shp || `9`"},
        edge | {"dst": "shp || shop"},
        [edge | {"src": "usr"}, edge],
        {"op": "kind", "id": "user"},
    ):
        assert said(tmp_path, events_map=events_map)


def test_a_table_without_rows_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("source,target\n")
    assert said(tmp_path, empty={0}) == ["a.csv: columns ignored: source, target: see --events-map"]
    assert "no row can be an event" in refusal(tmp_path)


@pytest.mark.parametrize("events_map", [None, {"op": "op", "src": "src || id", "dst": "dst", "id": "id"}])
def test_ids_of_text_that_the_job_will_reject_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events_map: dict[str, str] | None
) -> None:
    (tmp_path / "a.csv").write_text("op,id,src,dst\nadd_vertex,7,,\nadd_edge,,7,m9\nadd_edge,,7,9\nadd_edge,,7,09\n")
    sources = plan_sources(find_sources([str(tmp_path)]), {}, TopicReading("earliest", False, ClientProperties()))
    parser = Parser(Features(2), events_map=events_map)
    decide_kinds(sources, parser)
    tell_other_ids(sources, parser)
    said = (
        "2 of its first 4 rows will be rejected, as row 1: dst: expected an integer like the job's other ids, got the"
    )
    assert f"a.csv: {said} string 'm9'; --id-type string takes numbers and texts" in capsys.readouterr().err
    tell_other_ids(sources, Parser(Features(2), "string", events_map=events_map))
    assert capsys.readouterr().err == ""

"""The settings of a job: plain data and back, and those of a job that was saved when they had no parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson

from freshet.operators.epochs.config import CutLogConfig, SealingConfig
from freshet.operators.parser.config import LetterConfig, ParserConfig
from freshet.operators.settings import OutletConfig, Settings
from freshet.partitioner.config import PartitionerConfig

FLAT = {
    "model": "M",
    "out": "O",
    "parts": 2,
    "partitioner": {"strategy": "hdrf", "hybrid_threshold": 5, "edge_types": ["a", "b"], "hash_seed": 7},
    "image": "O/base",
    "sources": ["e.jsonl"],
    "topics": [],
    "events_map": {"src": "a"},
    "chunks": "O/job/chunks.jsonl",
    "id_kind": "string",
    "id_bytes_max": 99,
    "epoch_events": 20,
    "epoch_ms": 0,
    "publish_ms": 10_000,
    "block_events": 30,
    "marker_interval_ms": 500,
    "journal_bytes": 40,
    "waiting_bytes": 50,
    "cut_log": "O/checkpoints/cuts",
    "keep_cuts": True,
    "checkpoints": "O/checkpoints",
    "checkpoints_away": False,
    "dead_letters": "O/dead_letters.jsonl",
    "letter_bytes": 60,
    "dead_letters_max": 70,
    "job_id": "0123456789abcdef",
    "run": 3,
    "outlet": {"model": "4332801c4fed", "form": "list", "epochs": 8, "ms": 9},
    "processor": {"blas": "x"},
}
IN_PARTS = Settings(
    model="M",
    out="O",
    parts=2,
    partitioning=PartitionerConfig("hdrf", hybrid_threshold=5, id_kind="string", edge_types=("a", "b"), hash_seed=7),
    parsing=ParserConfig({"src": "a"}, id_bytes_max=99, block_events=30),
    sealing=SealingConfig(20, 0, 500, journal_bytes=40, waiting_bytes=50, publish_ms=10_000),
    cuts=CutLogConfig("O/checkpoints/cuts", keep_cuts=True, checkpoints="O/checkpoints"),
    letters=LetterConfig("O/dead_letters.jsonl", record_bytes=60, dead_letters_max_bytes=70),
    outlet=OutletConfig("4332801c4fed", "list", coalesce_epochs=8, coalesce_ms=9),
    image="O/base",
    sources=("e.jsonl",),
    chunks="O/job/chunks.jsonl",
    job_id="0123456789abcdef",
    run=3,
    processor={"blas": "x"},
)


def test_settings_survive_json() -> None:
    assert Settings.from_dict(orjson.loads(orjson.dumps(IN_PARTS.to_dict()))) == IN_PARTS
    several = replace(IN_PARTS, parsing=ParserConfig(({"when": "a", "op": "b"}, {"op": "c"})))
    assert Settings.from_dict(orjson.loads(orjson.dumps(several.to_dict()))) == several
    bare = Settings("M", "O", 1)
    assert Settings.from_dict(orjson.loads(orjson.dumps(bare.to_dict()))) == bare


def test_a_job_that_was_saved_without_parts_is_read() -> None:
    assert Settings.from_dict(FLAT) == IN_PARTS
    without = Settings.from_dict({**FLAT, "outlet": {}})
    assert without.outlet is None


def test_files_close_a_tenth_before_what_is_done_must_be_readable() -> None:
    assert Settings(str(Path("M")), "O", 1, sealing=SealingConfig(publish_ms=10_000)).sealing.publish_after_ms == 9000

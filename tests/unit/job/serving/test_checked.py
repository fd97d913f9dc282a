"""Messages of other servers: whatever does not fit is refused before anything is made of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.job.serving.feeds.change_stream import schema_of
from freshet.job.serving.feeds.checked import change_head, check_rows, job_fields, whole_batches
from freshet.job.serving.feeds.fed_job import FedJob
from freshet.job.serving.feeds.peer_tails import _checked
from freshet.job.serving.protocol.columns import numbers, vectors
from freshet.operators.sink.tail.layout import R_ARRIVED_MS, R_EPOCH
from freshet.operators.sink.tail.reader import NotATailError
from tests.unit.job.serving.test_merging_faults import job_of, machines, record_of_part  # noqa: F401

JOB: dict[str, Any] = {"job_id": "f00d", "strings": False, "width": 3, "sources": ["events.jsonl"], "parts": 2}
TOLD = {"arrived_us": 1, "published_us": 2, "behind_us": None, "tail_failures": 0, "ended": False, "positions": []}
HEAD: dict[str, Any] = {"epoch": 7, "whole": True, "lives": True, "told": TOLD}
SCHEMA = schema_of(False, 3)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"job_id": "../../ssh"},
        {"job_id": "a/b"},
        {"job_id": "*"},
        {"job_id": ""},
        {"job_id": None},
        {"model_digest": "/../../ssh"},
        {"model_digest": "../" * 20 + "abcd"},
        {"model_digest": "A" * 64},
        {"model_digest": "0" * 64 + "\n"},
        {"model_digest": 7},
        {"width": 0},
        {"width": 2**40},
        {"width": True},
        {"parts": -1},
        {"parts": 10**9},
        {"sources": "events.jsonl"},
        {"strings": 1},
        {"consistency": "none"},
        {"kind_name": "us\ner"},
        {"kind_name": None},
        {"model_sha256": "../" * 20 + "abcd"},
        {"model_sha256": None},
        {"generation": -1},
        {"generation": 9000},
        {"generation": 2**63},
        {"generation": "1"},
        {"generation": True},
        {"generation": 1.0},
    ],
)
def test_a_description_that_does_not_fit_names_the_field(tmp_path: Path, wrong: dict[str, Any]) -> None:
    [field] = wrong
    with pytest.raises(ValueError, match=f"a job: {field}: expected"):
        FedJob.write(JOB | wrong, tmp_path / "tables")
    assert not (tmp_path / "tables").exists(), "nothing is written by it"


def test_a_description_that_fits_has_all_fields() -> None:
    found = job_fields(JOB | {"model_digest": "0a" * 32, "unknown": 1})
    assert found == JOB | {
        "model_digest": "0a" * 32,
        "begins_empty": False,
        "kind_name": "",
        "consistency": "epoch",
        "model": "",
        "model_folder": "",
        "model_sha256": "",
        "generation": None,
    }


@given(
    anything,
    st.sampled_from(
        [*JOB, "consistency", "generation", "model", "model_sha256", "model_digest", "model_folder", "begins_empty"]
    ),
)
def test_any_description_is_taken_or_refused(value: object, field: str) -> None:
    for sent in (value, JOB | {field: value}):
        try:
            found = job_fields(sent)
        except ValueError:
            continue
        assert 0 < found["width"] <= 2**16
        assert "/" not in found["job_id"] + found["model_digest"] + found["model_sha256"]


@given(anything, st.sampled_from([*HEAD, *TOLD]))
def test_any_piece_is_taken_or_refused(value: object, field: str) -> None:
    for sent in (value, HEAD | {field: value}, HEAD | {"told": TOLD | {field: value}}):
        try:
            head = change_head(sent)
        except ValueError:
            continue
        told = head["told"] if "told" in head else TOLD
        np.array([head["epoch"], told["arrived_us"], told["tail_failures"]], np.int64)
        np.array(told["positions"], np.int64).reshape(-1, 4)


def batch_of(ids: list[int], epochs: list[int], width: int = 3) -> pa.RecordBatch:
    rows = vectors(np.zeros((len(ids), width), np.float32))
    columns = [numbers(np.array(ids, np.int64)), numbers(np.array(epochs, np.int64)), rows]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(False, width))


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (batch_of([1], [8]), "rows of epochs 0 to 7, got 8"),
        (batch_of([1], [-1]), "rows of epochs 0 to 7, got -1"),
        (batch_of([1], [1], width=4), "another width"),
        (pa.RecordBatch.from_arrays([pa.array([1])], ["id"]), "another width or type"),
        (batch_of([1], [1]).set_column(0, SCHEMA.field(0), pa.array([None], pa.int64())), "without nulls"),
    ],
)
def test_rows_that_do_not_fit(batch: pa.RecordBatch, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_rows(batch, SCHEMA, 7)
    check_rows(batch_of([1, 2], [0, 7]), SCHEMA, 7)


def altered(column: pa.Array, before: bytes, after: bytes) -> pa.RecordBatch:
    """A batch as Arrow reads it from bytes that somebody has changed."""
    batch = pa.RecordBatch.from_arrays([column], ["id"])
    raw = batch.serialize().to_pybytes()
    assert before in raw
    return pa.ipc.read_record_batch(pa.py_buffer(raw.replace(before, after)), batch.schema)


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        (pa.array(range(12345)), struct.pack("<q", 12345), struct.pack("<q", 99999)),
        (pa.array(["abc", "defgh"]), struct.pack("<3i", 0, 3, 8), struct.pack("<3i", 0, 3, 1 << 30)),
        (pa.array(["abc", "defgh"]), struct.pack("<3i", 0, 3, 8), struct.pack("<3i", 0, -3, 8)),
        (pa.array(["abc", "defgh"]), b"abcdefgh", b"abcd\xffg\x80h"),
    ],
)
def test_a_batch_past_its_buffers_is_refused(column: pa.Array, before: bytes, after: bytes) -> None:
    chunk = SimpleNamespace(data=altered(column, before, after), app_metadata=pa.py_buffer(orjson.dumps(HEAD)))
    with pytest.raises(pa.ArrowInvalid):
        list(whole_batches([chunk]))


def damaged(word: int, value: int) -> Callable[[np.ndarray], None]:
    def damage(raw: np.ndarray) -> None:
        raw.view(np.int64)[word] = value

    return damage


@pytest.mark.parametrize("damage", [damaged(R_EPOCH, -5), damaged(R_ARRIVED_MS, 2**62), damaged(R_ARRIVED_MS, -1)])
def test_a_record_whose_words_are_out_of_bounds(machines: Any, damage: Callable[[np.ndarray], None]) -> None:  # noqa: F811
    raw = record_of_part(machines)
    assert _checked(raw, job_of(machines)).epoch == 1
    damage(raw)
    with pytest.raises(NotATailError, match="a record of epoch"):
        _checked(raw, job_of(machines))

"""Changes as Kafka records, compared with a slow decoder."""

import numpy as np
import pytest

from freshet.operators.record_blocks import BLOCK_BYTES, blocks_of, records_of
from freshet.operators.sink.coalesce import Changes, TextIds
from freshet.operators.sink.kafka_records import FORMS, RecordBlocks, record_bytes_max
from tests.support.kafka.records import parse, split, split_epochs

MODEL = "0123456789ab"
ODD = ["", "a", "tab\there", "line\nend", 'quote"\\', "ä", "日本", "😀 and é", "\x00\x1f\x7f", "x" * 300, " "]


def changes(ids, width=3, deleted=(), seed=1):
    n = len(ids)
    rows = np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)
    gone = np.isin(np.arange(n), deleted)
    if n and isinstance(ids[0], str):
        texts = [text.encode() for text in ids]
        offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
        ids = TextIds(offsets, np.frombuffer(b"".join(texts), np.uint8).copy())
    else:
        ids = np.array(ids, np.int64)
    return Changes(ids, np.arange(n, dtype=np.int64) * 10**12, gone, rows)


def records(given, **options):
    return [record for block in RecordBlocks(MODEL, **options).blocks(given) for record in split(block)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [1, 2, 3, 40])
def test_integer_ids(form, width):
    ids = [0, 7, -1, 10, 2**63 - 1, -(2**63), 123]
    given = changes(ids, width, deleted=[2])
    found = records(given, form=form)
    assert [key.decode() for key, _ in found] == list(map(str, ids))
    for k, (_, value) in enumerate(found):
        if k == 2:
            assert value is None
            continue
        record = parse(value)
        assert (record["epoch"], record["model"]) == (k * 10**12, MODEL)
        if form != "binary":
            assert list(record) == ["id", "epoch", "model", "embedding"]
            assert record["id"] == ids[k]
        assert np.array_equal(record["embedding"], given.rows[k])


@pytest.mark.parametrize("form", FORMS)
def test_string_ids_whatever_they_hold(form):
    given = changes(ODD, deleted=[3, 5])
    found = records(given, form=form)
    assert [key.decode() for key, _ in found] == ODD
    for k, (_, value) in enumerate(found):
        assert (value is None) == (k in (3, 5))
        if value is not None:
            assert parse(value).get("id") == (None if form == "binary" else ODD[k])
            assert np.array_equal(parse(value)["embedding"], given.rows[k])


@pytest.mark.parametrize("ids", [[7, 8, 9], ["", "plain", "ta\tb"]])
def test_a_tombstone_has_its_epoch(ids):
    given = changes(ids, deleted=[0, 2])
    found = [one for block in RecordBlocks(MODEL).blocks(given) for one in split_epochs(block)]
    assert [epoch for _, _, epoch in found] == [0, None, 2 * 10**12]
    assert [value is None for _, value, _ in found] == [True, False, True]


@pytest.mark.parametrize("ids", [[7, -8], ODD])
def test_records_of_a_block(ids):
    blocks = list(RecordBlocks(MODEL).blocks(changes(ids, deleted=[1])))
    assert list(blocks_of(one for block in blocks for one in records_of(block))) == blocks


def test_a_binary_value_byte_by_byte():
    given = changes([7], 2)
    given.epochs[:] = 0x0102030405060708
    given.rows[:] = [1.0, -2.5]
    [(key, value)] = records(given, form="binary")
    assert key == b"7"
    assert value.hex(" ") == "01 01 23 45 67 89 ab 00 08 07 06 05 04 03 02 01 00 00 80 3f 00 00 20 c0"
    [(key, value)] = records(changes(["7"], 0), form="binary")
    assert key == b"7"
    assert value.hex(" ") == "01 01 23 45 67 89 ab 01 00 00 00 00 00 00 00 00", "string ids"


def test_values_that_are_not_finite():
    given = changes([1])
    given.rows[0] = [np.nan, np.inf, -np.inf]
    [(_, value)] = records(given)
    assert np.array_equal(parse(value)["embedding"], given.rows[0], equal_nan=True)
    [(_, value)] = records(given, form="list")
    assert value.endswith(b'"embedding":[null,null,null]}')


@pytest.mark.parametrize("width", [8, 3000])
def test_many_changes_come_in_blocks(width):
    n = 10_000 if width == 8 else 40
    given = changes(list(range(n)), width, deleted=range(0, n, 7))
    blocks = list(RecordBlocks(MODEL).blocks(given))
    assert len(blocks) > 3
    assert all(0 < len(block) <= BLOCK_BYTES for block in blocks)
    found = [record for block in blocks for record in split(block)]
    assert [int(key) for key, _ in found] == list(range(n))
    assert sum(value is None for _, value in found) == len(range(0, n, 7))


def test_a_line_that_is_longer_than_a_block():
    given = changes([1, 2, 3], 40_000)
    blocks = list(RecordBlocks(MODEL).blocks(given))
    assert [len(split(block)) for block in blocks] == [1, 1, 1]
    assert np.array_equal(parse(split(blocks[2])[0][1])["embedding"], given.rows[2])


def test_nothing():
    assert records(changes([])) == []


def test_an_unknown_form():
    with pytest.raises(ValueError, match="got 'csv', expected one of base64, list, binary"):
        RecordBlocks(MODEL, "csv")


WIDEST = np.array([-1.1754944e-38, -3.4028235e38, -1e-45, 1.2345679e-10, -0.000123456], np.float32)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [0, 1, 2, 3, 5, 1000])
def test_no_record_is_larger_than_said(form, width):
    for ids in (["\x01" * 50, "\x7f" * 50, "é" * 25, "😀" * 12, "x" * 50], [-(2**63), 2**63 - 1]):
        given = changes(ids, width)
        given.rows[:] = np.resize(WIDEST, (len(ids), width))
        given.epochs[:] = 2**63 - 1
        most = record_bytes_max(width, form, MODEL, 50 if isinstance(ids[0], str) else 20)
        sizes = [len(key) + len(value) for key, value in records(given, form=form)]
        assert max(sizes) <= most
        assert most < 2 * max(sizes) + 200, "nor is it much less"

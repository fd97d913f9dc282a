"""A bit that flips in any file of the change log: each reader gets what was written, or the file is named."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from freshet.files.json_file import DamagedFileError
from freshet.job.serving.tables.change_log_rows import positions_at, rows_between
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.sink.epoch_files import EpochFiles, LostEpochsError, rows_in
from freshet.operators.sink.epoch_rows import EpochRows, LogFile
from freshet.operators.sink.log_proof import complete_epoch, epochs_of
from freshet.state.checksums.sealed import MARK

WIDTH, PARTS, EPOCHS, FLIPS = 4, 2, 8, 120
SOURCES = ("a.jsonl", "b.jsonl")


def rows_of(epoch: int, part: int, kind: str, rows: int) -> EpochRows:
    rng = np.random.default_rng([epoch, part])
    keys = rng.choice(3 * rows, rows + 1, replace=False) * PARTS + part
    texts = [f"vertex {key}".encode() for key in keys]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    ids: Any = [keys] if kind == "int" else [(offsets, np.frombuffer(b"".join(texts), np.uint8))]
    vectors = rng.standard_normal((rows, WIDTH), dtype=np.float32)
    return EpochRows(epoch, ids, [vectors], rows, 1, np.array([[epoch % 2, part, 10 * epoch, 7]]))


def write(out: Path, kind: str, rows: int = 2) -> None:
    for part in range(PARTS):
        log = ChangeLog(LogFolders(out), part, WIDTH, kind, list(SOURCES))
        log.write(LogFile(0, [rows_of(epoch, part, kind, rows) for epoch in range(EPOCHS // 2)], group=0))
        log.write(LogFile(1, [rows_of(epoch, part, kind, rows) for epoch in range(EPOCHS // 2, EPOCHS)], group=0))


@pytest.fixture(params=["int", "string"])
def log(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """Two parts of two files each, each of two row groups; epochs/ has one file of two row groups."""
    monkeypatch.setattr("freshet.operators.sink.parquet_writer.ROW_GROUP_ROWS", 7)
    write(tmp_path, request.param)
    files = [*(tmp_path / "embeddings").iterdir(), *(tmp_path / "epochs").iterdir()]
    assert [pq.read_metadata(path).num_row_groups for path in files] == [2] * 5
    return tmp_path, request.param


def readers(out: Path, kind: str) -> dict[str, Callable[[], Any]]:
    """Everything that reads the log."""

    def of_log() -> ChangeLogReader:
        return ChangeLogReader(out)

    def proven() -> int:
        return complete_epoch(LogFolders(out), PARTS, {}, has_finished=False, noted=None)

    return {
        "final": lambda: of_log().final(),
        "before": lambda: of_log().state_at(EPOCHS // 2),
        "narrow": lambda: of_log().final(vectors=False),
        "scan": lambda: of_log().scan(),
        "positions": lambda: of_log().positions(),
        "last epoch": lambda: of_log().last_epoch(),
        "rows between": lambda: rows_between(LogFolders(out), -1, EPOCHS, kind == "string", WIDTH),
        "later rows": lambda: rows_between(LogFolders(out), EPOCHS // 2, EPOCHS - 1, kind == "string", WIDTH),
        "positions at": lambda: positions_at(LogFolders(out), EPOCHS, SOURCES),
        "proven": proven,
        "bounds": lambda: [epochs_of(path) for path in sorted((out / "embeddings").iterdir())],
    }


def shown(found: Any) -> str:
    """What a reader has found, to its last bit."""
    if isinstance(found, np.ndarray):
        return f"{found.dtype}{found.shape}{found.tolist() if found.dtype == object else found.tobytes().hex()}"
    if hasattr(found, "__dataclass_fields__"):
        return str({name: shown(getattr(found, name)) for name in found.__dataclass_fields__})
    if isinstance(found, tuple):
        return str([shown(one) for one in found])
    return str(found.tolist() if hasattr(found, "tolist") else found)


def flipped(path: Path, places: list[int]) -> Iterator[int]:
    """The places one by one, in bits, with the file in which that bit is another one; it is sound again at the end."""
    sound = path.read_bytes()
    for place in places:
        data = bytearray(sound)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        yield place
    path.write_bytes(sound)


def places_of(path: Path) -> list[int]:
    """Some of all over the file, and some around the seal, in the footer and at both ends."""
    data = path.read_bytes()
    seal, rng = data.rfind(MARK), random.Random(len(data))
    end = len(data)
    spans = [(0, end), (0, 8), (max(seal - 32, 0), seal + 32), (max(seal, 0), end), (end - 8, end)]
    return [rng.randrange(8 * begin, 8 * end) for begin, end in spans for _ in range(FLIPS // len(spans))]


@pytest.mark.parametrize("name", ["embeddings/part-0-00000001", "embeddings/part-1-00000000", "epochs/epochs-00000000"])
def test_a_bit_that_flips_gives_no_wrong_rows(log: tuple[Path, str], name: str) -> None:
    out, kind = log
    path = out / f"{name}.parquet"
    right = {reader: shown(read()) for reader, read in readers(out, kind).items()}
    refused, wrong, rows = 0, [], pq.read_metadata(path).num_rows
    for place in flipped(path, places_of(path)):
        for reader, read in readers(out, kind).items():
            try:
                if shown(read()) != right[reader]:
                    wrong.append((reader, place))
            except DamagedFileError as error:
                assert str(error).startswith(f"{path} is damaged (")
                refused += 1
        assert rows_in(path) in (-1, rows)
    assert not wrong, f"{len(wrong)} reads, such as {wrong[:9]}"
    assert refused > FLIPS
    assert {reader: shown(read()) for reader, read in readers(out, kind).items()} == right


def test_a_job_does_not_go_on_with_damaged_epochs(log: tuple[Path, str]) -> None:
    """The file of `epochs/` that grows is read by the job itself."""
    out, kind = log
    (path,) = (out / "epochs").iterdir()
    rows = pq.read_metadata(path).num_rows
    before = pq.read_table(path)
    for _ in flipped(path, places_of(path)):
        assert rows_in(path) in (-1, rows)
        damaged = path.read_bytes()
        try:
            EpochFiles(out / "epochs", list(SOURCES)).write(LogFile(2, [rows_of(EPOCHS, 0, kind, 2)], group=0))
        except LostEpochsError as error:
            assert str(path) in str(error)
            assert path.read_bytes() == damaged
        else:
            assert pq.read_table(path).slice(0, rows) == before


def test_files_of_many_steps_are_read_in_parts(tmp_path: Path) -> None:
    write(tmp_path, "int", rows=20_000)
    path = tmp_path / "embeddings" / "part-1-00000001.parquet"
    assert path.stat().st_size > 1 << 20
    right = {reader: shown(read()) for reader, read in readers(tmp_path, "int").items()}
    rng = random.Random(3)
    wrong, refused = [], set()
    for place in flipped(path, [rng.randrange(8 * path.stat().st_size) for _ in range(12)]):
        for reader, read in readers(tmp_path, "int").items():
            try:
                if shown(read()) != right[reader]:
                    wrong.append((reader, place))
            except DamagedFileError:
                refused.add(place)
    assert not wrong
    assert len(refused) == 12, "a scan reads all of it"


def test_who_knows_nothing_of_seals_reads_the_same(log: tuple[Path, str]) -> None:
    import polars as pl

    out, _ = log
    for path in sorted((out / "embeddings").iterdir()):
        table = pq.read_table(path)
        assert table["embedding"].type == pa.list_(pa.float32(), WIDTH)
        assert pl.read_parquet(path).to_arrow()["id"].to_pylist() == table["id"].to_pylist()
    whole = pyarrow.dataset.dataset(out / "embeddings", format="parquet").to_table()
    assert whole.num_rows == PARTS * EPOCHS * 3


@pytest.mark.parametrize("rewritten", ["whole", "some rows"])
def test_a_file_without_a_seal_is_read(log: tuple[Path, str], rewritten: str) -> None:
    """Of an earlier version, or of another writer that has read one with a seal."""
    out, kind = log
    right = {reader: shown(read()) for reader, read in readers(out, kind).items()}
    for path in [*(out / "embeddings").iterdir(), *(out / "epochs").iterdir()]:
        pq.write_table(pq.read_table(path), path, row_group_size=7 if rewritten == "whole" else 3)
        assert MARK not in path.read_bytes()
    assert {reader: shown(read()) for reader, read in readers(out, kind).items()} == right

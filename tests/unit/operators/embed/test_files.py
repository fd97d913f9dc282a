"""Files that are cut off, damaged or can't be written are errors with a name, never wrong rows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from freshet.operators.embed.cold_store import ColdStore
from freshet.operators.embed.edge_sort import EDGE, KEYED_EDGES, EdgeSorter
from freshet.operators.embed.files import DiskFile, EmbedError, FinishedSteps, full_disk
from freshet.operators.embed.memory_plan import BudgetError
from freshet.operators.embed.rows_file import RowsFile
from freshet.operators.embed.topology import EmbedTopology
from freshet.partitioner.config import LOOP_OF_SECOND_KEY, LOOP_OF_SECOND_TYPE


def full(path: Path) -> RowsFile:
    """Ten rows in three blocks, written in an order of no kind."""
    file = RowsFile(path, 10, 3, 4, shuffled=True, new=True)
    for vertex in (9, 0, 5, 4, 8, 3, 2, 1, 7, 6):
        block = vertex // 4
        file.append(block, np.array([vertex - 4 * block], np.int32), np.full((1, 3), vertex, np.float32))
    return file


def test_rows_come_back_in_the_order_of_their_vertices(tmp_path: Path) -> None:
    file = full(tmp_path / "rows")
    record = file.record()
    file.close()
    again = RowsFile(tmp_path / "rows", 10, 3, 4, shuffled=True, new=False)
    again.restore(record)
    rows = np.concatenate([again.read(block) for block in range(again.blocks)])
    assert np.array_equal(rows, np.repeat(np.arange(10, dtype=np.float32)[:, None], 3, axis=1))
    again.close()
    RowsFile.remove(tmp_path / "rows")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [1, 4096, 100_001])
@pytest.mark.parametrize(("offset", "nbytes"), [(0, 1), (4, 4096), (8192, 4096), (4097, 50_000), (99_000, 1001)])
def test_what_is_read_past_the_page_cache_is_what_is_in_the_file(
    tmp_path: Path, size: int, offset: int, nbytes: int
) -> None:
    content = np.random.default_rng(1).integers(0, 256, size).astype(np.uint8)
    content.tofile(tmp_path / "file")
    file = DiskFile(tmp_path / "file")
    if offset + nbytes > size:
        with pytest.raises(EmbedError, match="ends at byte"):
            file.read_once(offset, nbytes)
    else:
        assert np.array_equal(file.read_once(offset, nbytes), content[offset : offset + nbytes])
    assert file.reads_direct == has_direct_io(tmp_path)
    file.close()


def has_direct_io(folder: Path) -> bool:
    try:
        os.close(os.open(folder / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError:
        return False
    return True


def test_a_file_system_without_direct_io_is_read_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.arange(5000, dtype=np.int32).tofile(tmp_path / "file")
    file, real = DiskFile(tmp_path / "file"), os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if descriptor != file.number:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(descriptor, buffers, offset)

    with monkeypatch.context() as patched:
        patched.setattr("freshet.operators.embed.files.os.preadv", preadv)
        assert file.read_once(4000, 12_000).view(np.int32).tolist() == list(range(1000, 4000))
    monkeypatch.setattr("freshet.operators.embed.files._opened_direct", lambda _: -1)
    again = DiskFile(tmp_path / "file")
    assert again.read_once(4000, 12_000).view(np.int32).tolist() == list(range(1000, 4000))
    assert not again.reads_direct


def test_rows_that_the_cache_can_not_hold_are_read_past_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = full(tmp_path / "rows")
    blocks = [expected.read(block) for block in range(expected.blocks)]
    monkeypatch.setattr("freshet.operators.embed.rows_file.available_memory", lambda: 100)
    again = RowsFile(tmp_path / "rows", 10, 3, 4, shuffled=True, new=False)
    again.restore(expected.record())
    for block, rows in enumerate(blocks):
        assert np.array_equal(again.read(block), rows)
    assert again._rows.reads_direct == has_direct_io(tmp_path) and not expected._rows.reads_direct


@pytest.mark.parametrize("name", ["rows.rows", "rows.at"])
def test_a_flipped_bit_is_noticed(name: str, tmp_path: Path) -> None:
    file = full(tmp_path / "rows")
    with (tmp_path / name).open("r+b") as damaged:
        damaged.seek(17)
        byte = damaged.read(1)[0]
        damaged.seek(17)
        damaged.write(bytes([byte ^ 1]))
    file.read(2)
    with pytest.raises(EmbedError, match=r"rows: block (0|1) does not match its checksum"):
        for block in range(2):
            file.read(block)


def test_a_file_that_was_cut_off_is_noticed(tmp_path: Path) -> None:
    file = full(tmp_path / "rows")
    os.truncate(tmp_path / "rows.rows", 60)
    with pytest.raises(EmbedError, match=r"rows.rows: ends at byte 60, expected 96 and more: it was cut off"):
        file.read(1)


def test_a_row_too_many_is_refused(tmp_path: Path) -> None:
    file = full(tmp_path / "rows")
    with pytest.raises(EmbedError, match="block 2 has 3 rows, expected 2"):
        file.append(2, np.zeros(1, np.int32), np.zeros((1, 3), np.float32))


def test_a_missing_file_and_a_full_disk_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EmbedError, match="gone: is missing"):
        DiskFile(tmp_path / "gone")
    file = DiskFile(tmp_path / "file", 8)

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_room)
    with pytest.raises(EmbedError, match="file: no room left on the disk"):
        file.write(0, np.zeros(1))
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(EmbedError, match="new: no room left on the disk"):
        DiskFile(tmp_path / "new", 8)
    assert "can't be written" in str(full_disk(tmp_path, OSError(errno.EIO, "Input/output error")))


def test_what_was_cold_comes_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    source = rng.standard_normal((5000, 3))
    cold = ColdStore(tmp_path / "cold", 3, 5000)
    held: dict[int, np.ndarray] = {}
    which = np.arange(5000, dtype=np.int32)
    for _ in range(4):
        some = np.sort(rng.choice(which, 1000, replace=False)).astype(np.int32)
        slots = cold.put(source, some)
        held |= {int(slot): source[row] for slot, row in zip(slots, some, strict=True)}
        back = np.sort(rng.choice(np.array(list(held)), 700, replace=False)).astype(np.int32)
        target = np.zeros((700, 3))
        cold.fetch(back, target, np.arange(700, dtype=np.int32))
        assert np.array_equal(target, [held.pop(int(slot)) for slot in back])
    assert cold.used == len(held) == 1200
    assert cold.peak == 3 * 300 + 1000
    cold.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bucket_edges", [1, 7, 1000])
def test_edges_are_sorted_in_buckets_of_any_size(bucket_edges: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(bucket_edges)
    edges = np.zeros(600, EDGE)
    edges["src"], edges["dst"] = rng.integers(0, 20, 600) ** 2 // 20, rng.integers(0, 20, 600)
    edges["etype"], edges["weight"] = rng.integers(0, 2, 600), np.arange(600)
    raw = DiskFile(tmp_path / "raw", edges.nbytes)
    raw.write(0, edges)
    raw.close()
    counts = np.bincount(edges["src"], minlength=20).astype(np.int32)
    sorter = EdgeSorter(tmp_path, 20, bucket_edges, weighted=True)
    loops: list[int] = []

    def loop_twice(number: int, reason: int) -> None:
        assert reason == LOOP_OF_SECOND_TYPE
        loops.append(number)

    left, loops_left = sorter.sort(tmp_path / "raw", 600, counts, keep_all=False, loop_twice=loop_twice)
    last = {(e["src"], e["dst"], e["etype"]): e["weight"] for e in edges}
    want = sorted((int(u), int(v), int(t), float(w)) for (u, v, t), w in last.items())
    topology = EmbedTopology(tmp_path, 20, left, weighted=True)
    offsets = topology.offsets(0, 20)
    dst, weight, _ = topology.read(0, left)
    got = list(zip(np.repeat(np.arange(20), np.diff(offsets)).tolist(), dst.tolist(), weight.tolist(), strict=True))
    assert got == [(u, v, w) for u, v, _, w in want]
    assert loops_left == sum(u == v for u, v, *_ in want)
    twice = {u for u, v, t, _ in want if u == v and t} & {u for u, v, t, _ in want if u == v and not t}
    assert twice
    assert set(loops) <= twice
    assert min(loops) == min(twice)
    context = topology.contexts()
    assert np.array_equal(context.count, np.bincount(dst, minlength=20))
    assert not (tmp_path / "raw").exists() and not (tmp_path / "buckets").exists()


@pytest.mark.parametrize("kind", ["int", "string"])
@pytest.mark.parametrize("bucket_edges", [1, 7, 1000])
def test_parallel_edges_stay_in_the_order_of_their_coming(bucket_edges: int, kind: str, tmp_path: Path) -> None:
    rng, vertices = np.random.default_rng(bucket_edges), 8
    edges = np.zeros(900, KEYED_EDGES[kind])
    edges["src"], edges["dst"] = rng.integers(0, vertices, 900), rng.integers(0, vertices, 900)
    edges["etype"], edges["weight"] = rng.integers(0, 2, 900), np.arange(900)
    edges["key"] = rng.integers(0, 9, 900)
    if kind == "string":  # both halves of a hash tell keys apart
        edges["key"], edges["key_too"] = edges["key"] // 3, edges["key"] % 3
    raw = DiskFile(tmp_path / "raw", edges.nbytes)
    raw.write(0, edges)
    raw.close()
    counts = np.bincount(edges["src"], minlength=vertices).astype(np.int32)
    sorter = EdgeSorter(tmp_path, vertices, bucket_edges, weighted=True, edge=edges.dtype)
    reasons: set[int] = set()
    left, loops = sorter.sort(
        tmp_path / "raw", 900, counts, keep_all=False, loop_twice=lambda _, reason: reasons.add(reason)
    )
    names = [name for name in edges.dtype.names or () if name != "weight"]
    last = {tuple(int(edge[name]) for name in names): float(edge["weight"]) for edge in edges}
    want = sorted((key[0], key[1], key[2], weight) for key, weight in last.items())
    assert left == len(want) < 900 and len({one[:3] for one in want}) < left
    topology = EmbedTopology(tmp_path, vertices, left, weighted=True)
    src = np.repeat(np.arange(vertices), np.diff(topology.offsets(0, vertices)))
    dst, weight, _ = topology.read(0, left)
    assert list(zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True)) == [(u, v, w) for u, v, _, w in want]
    assert reasons == {LOOP_OF_SECOND_KEY}
    looped = np.bincount(src[src == dst], minlength=vertices)
    assert loops == looped.sum() and looped.max() > 2
    assert np.array_equal(topology.more_loops(0, vertices), np.maximum(looped - 1, 0))
    assert topology.more_loops(3, 5).tolist() == (looped[3:5] - 1).tolist()


def test_edges_of_a_source_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    edges = np.zeros(70_000, KEYED_EDGES["int"])
    edges["key"] = np.arange(len(edges))
    raw = DiskFile(tmp_path / "raw", edges.nbytes)
    raw.write(0, edges)
    raw.close()
    given = (tmp_path / "raw", len(edges), np.array([len(edges), 0], np.int32))
    with pytest.raises(BudgetError, match="one vertex has 70,000 out-edges with keys, which are sorted in 7,840,080"):
        EdgeSorter(tmp_path, 2, 30_000, weighted=False, edge=edges.dtype).sort(
            *given, keep_all=False, loop_twice=lambda *_: None
        )
    left, _ = EdgeSorter(tmp_path, 2, 40_000, weighted=False, edge=edges.dtype).sort(
        *given, keep_all=False, loop_twice=lambda *_: None
    )
    assert left == len(edges)


def test_a_journal_is_whole_or_refused(tmp_path: Path) -> None:
    FinishedSteps(tmp_path).put("step", {"done": 1})
    assert FinishedSteps(tmp_path).get("step") == {"done": 1}
    (tmp_path / "journal.json").write_text("{")
    with pytest.raises(EmbedError, match=r"journal.json: damaged"):
        FinishedSteps(tmp_path)
    (tmp_path / "journal.json").write_text('{"format": 99}')
    with pytest.raises(EmbedError, match="of another version of Freshet"):
        FinishedSteps(tmp_path)

"""`freshet partition` on a small graph whose structure is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest

from job.partition import partition
from operators.snapshot import write_snapshot

RING = 60


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Six rings of ten vertices: whoever joins neighbours cuts little."""
    src = np.arange(RING)
    dst = src // 10 * 10 + (src + 1) % 10
    write_snapshot(tmp_path / "S", np.arange(RING), np.ones((RING, 3), np.float32), src, dst)
    return tmp_path / "S"


def test_every_partitioner_gets_a_line(snapshot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["hybrid", "hdrf", "locality", "hash"]
    assert partition(parts=3, events=[], snapshot=snapshot, partitioners=names, undirected=False) == 0
    lines = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["partitioner"] for line in lines] == names
    by_name = {line["partitioner"]: line for line in lines}
    for line in lines:
        assert (line["vertices"], line["edges"], line["parts"]) == (RING, RING, 3)
        assert line["edges_per_s"] > 0
    assert by_name["hybrid"]["cut_share"] < by_name["hash"]["cut_share"]


def test_a_stream_without_snapshot_tells_its_own_width(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [b'{"op":"add_edge","src":1,"dst":2}', b'{"op":"set_features","id":1,"x":[1,2]}', b"no event"]
    (tmp_path / "e.jsonl").write_bytes(b"\n".join(lines))
    assert (
        partition(parts=2, events=[str(tmp_path / "e.jsonl")], snapshot=None, partitioners=["hybrid"], undirected=True)
        == 0
    )
    captured = capsys.readouterr()
    assert orjson.loads(captured.out)["edges"] == 2
    assert "1 records were no events" in captured.err

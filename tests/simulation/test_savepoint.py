"""A checkpoint that an earlier version saved (tests/data/state) goes on in this one, or is refused by its version.

So does one that this version saves, by the same support: so the next one to be kept can be made.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from freshet.operators.epochs.cut_log import CutLog
from freshet.state.codec import FORMAT_VERSION, UnknownFormatError
from freshet.state.sweep import STATE_FORMAT
from tests.support import oracle
from tests.support.simulation.oracle import NO_FAULTS, references
from tests.support.simulation.savepoint import Savepoint, load, make, start
from tests.support.simulation.simulator import Faults
from tests.support.stages.cuts import copied

FOLDER = Path(__file__).resolve().parents[1] / "data" / "state" / f"format-{STATE_FORMAT}"


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint that this version makes."""
    folder = tmp_path_factory.mktemp("savepoint")
    make(folder)
    return folder


@pytest.fixture(params=["kept", "new"])
def savepoint(request: pytest.FixtureRequest) -> Savepoint:
    return load(FOLDER if request.param == "kept" else request.getfixturevalue("new"))


def change_log(out: Path) -> pa.Table:
    files = sorted(path for path in (out / "embeddings").glob("*.parquet") if path.name[0] not in "._")
    return pa.concat_tables([pq.read_table(path) for path in files]).sort_by(
        [("epoch", "ascending"), ("id", "ascending")]
    )


def test_it_holds_what_can_go_wrong(savepoint: Savepoint) -> None:
    states = savepoint.checkpoint.states
    places = {operator for operator, _ in states}
    assert places == {"partitioner", "storage0", "storage1", "tail1", "storage2", "tail2", "sink"}
    assert all("meta@4" in entries for entries in states.values())
    assert any(key.startswith("journal/") for key in states["partitioner", 0])
    assert savepoint.epoch < 0.7 * len(savepoint.events)
    assert any(key.startswith("partial/") for entries in states.values() for key in entries), "split vertices"


@pytest.mark.parametrize("crashes", [0, 3])
def test_it_goes_on_to_the_right_result(savepoint: Savepoint, tmp_path: Path, crashes: int) -> None:
    faults = Faults(barrier=0.02, tick=0.005, crashes=crashes, crash=0.01, feed=0.01)
    resumed = savepoint.resume(tmp_path / "resumed", tmp_path / "cuts", 7, faults)
    assert resumed.crashes == crashes
    cuts = copied(resumed.log)
    whole = start(savepoint.settings, savepoint.model, savepoint.events, cuts, 8, NO_FAULTS, tmp_path / "whole")
    whole.run()
    got, want = change_log(tmp_path / "resumed"), change_log(tmp_path / "whole")
    first = got["epoch"][0].as_py()
    assert first <= savepoint.epoch, "some epochs are replayed"
    later = want.filter(pc.greater_equal(want["epoch"], first))
    assert got.select(["id", "epoch", "deleted"]).equals(later.select(["id", "epoch", "deleted"]))
    np.testing.assert_allclose(vectors(got), vectors(later), rtol=1e-5, atol=1e-6)
    assert_final(savepoint, cuts, pa.concat_tables([want.filter(pc.less(want["epoch"], first)), got]))


def vectors(table: pa.Table) -> np.ndarray:
    return np.array([row if row is not None else [0.0] * 3 for row in table["embedding"].to_pylist()])


def assert_final(savepoint: Savepoint, log: CutLog, rows: pa.Table) -> None:
    """The last row of each id equals a full recompute of the last graph."""
    state = {}
    for row in rows.to_pylist():
        state[row["id"]] = None if row["deleted"] else row["embedding"]
    _, graph = references(savepoint.events, log, savepoint.settings)[-1]
    assert {name for name, row in state.items() if row is not None} == set(graph.ids)
    want = oracle.forward(savepoint.model, graph.graph)[-1]
    assert len(want) > 5
    np.testing.assert_allclose(np.array([state[name] for name in graph.ids]), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", [("partitioner", 0), ("storage1", 2), ("tail2", 0), ("sink", 1)])
def test_another_state_format_is_refused_by_version(
    savepoint: Savepoint, tmp_path: Path, place: tuple[str, int]
) -> None:
    savepoint.checkpoint.states[place]["format"] = str(STATE_FORMAT + 1).encode()
    with pytest.raises(UnknownFormatError, match=f"state format {STATE_FORMAT + 1} is not known"):
        savepoint.resume(tmp_path / "out", tmp_path / "cuts", 7, NO_FAULTS)
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()], "nothing was written"


def test_a_journal_in_another_block_format_is_refused_by_version(savepoint: Savepoint, tmp_path: Path) -> None:
    entries = savepoint.checkpoint.states["partitioner", 0]
    key = next(key for key in entries if key.startswith("journal/"))
    block = bytearray(entries[key])
    block[2] = FORMAT_VERSION + 1
    entries[key] = bytes(block)
    with pytest.raises(UnknownFormatError, match=f"block format version {FORMAT_VERSION + 1}"):
        savepoint.resume(tmp_path / "out", tmp_path / "cuts", 7, NO_FAULTS)

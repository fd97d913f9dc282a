"""scripts/drills/equal_embed.py has a model of every layer, and finds a row that is wrong or missing."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.layers.registry import names
from scripts.drills.equal_embed import compared, is_equal
from tests.support.graphs.random_graphs import weighted

models = pytest.importorskip("scripts.drills.equal_models", exc_type=ImportError)


def test_every_kind_of_layer_has_a_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    graph = weighted(
        rng.standard_normal((6, 4), np.float32),
        np.array([0, 1, 2, 2]),
        np.array([1, 2, 0, 2]),
        rng.random(4).astype(np.float32),
    )
    found = set()
    for name in models.NAMES:
        model = models.save(name, graph, tmp_path / name)
        found |= {layer.type for layer in model.layers}
        for dtype in (np.float32, np.float64):
            rows = models.embeddings(name, graph, model, dtype)
            assert rows.shape == (6, model.out_width) and rows.dtype == dtype
    attributed = {"gine_conv", "nn_conv", "gmm_conv", "cg_conv", "gen_conv"}
    written = {"own_layer"}  # its code is no module of PyTorch Geometric
    assert found >= set(names()) - attributed - written, "the graphs of equal_embed.py have no attributes"


def written(folder: Path, ids: list[int], rows: np.ndarray, epoch: int = 0) -> Path:
    (folder / "embeddings").mkdir(exist_ok=True)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    columns = {"id": ids, "epoch": [epoch] * len(ids), "embedding": vectors, "deleted": [False] * len(ids)}
    pq.write_table(pa.table(columns), folder / "embeddings" / f"part-{len(ids)}.parquet")
    return folder


ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
OFF = ROWS + np.float32(0.01) * (ROWS == 7)


@pytest.mark.parametrize(
    ("ids", "rows", "epoch", "equal"),
    [
        ([2, 0, 3, 1], ROWS[[2, 0, 3, 1]], 0, True),
        ([0, 1, 3], ROWS[[0, 1, 3]], 0, False),
        ([0, 1, 2, 3, 3], ROWS[[0, 1, 2, 3, 3]], 0, False),
        ([0, 1, 2, 2], ROWS[[0, 1, 2, 2]], 0, False),
        ([0, 1, 2, 4], ROWS, 0, False),
        ([0, 1, 2, 3], ROWS, 1, False),
        ([0, 1, 2, 3], OFF, 0, False),
        ([0, 1, 2, 3], np.where(ROWS == 7, np.float32(np.nan), ROWS), 0, False),
    ],
)
def test_every_vertex_has_its_row_once(
    tmp_path: Path, ids: list[int], rows: np.ndarray, epoch: int, equal: bool
) -> None:
    found = compared(written(tmp_path, ids, rows, epoch), ROWS.astype(np.float64))
    assert is_equal(found, 4) is equal
    assert found["rows"] == len(ids)

"""Base images of small graphs, made in memory and out of core, and their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.gnn.model import Model, save_model
from freshet.operators.base_image import build_image
from freshet.operators.factory import load_plan
from freshet.operators.initial.image import ImageReport, InitialImage
from freshet.operators.settings import Settings
from freshet.operators.snapshot.reader import Snapshot, open_snapshot
from tests.support.simulation.oracle import job_settings

_POOLS = ("pool", "weight", "free", "partial", "chain", "counts", "heap")
BLOCK_ROWS = 7  # of a snapshot that is read in many pieces


def image_settings(model: Model, snapshot: Path, folder: Path, parts: int, **options: object) -> Settings:
    """Settings of a job whose output and image lie in the folder."""
    save_model(model, folder / "model")
    settings = job_settings(model, parts, id_kind=open_snapshot(snapshot, model.features).id_kind, **options)
    return replace(settings, model=str(folder / "model"), out=str(folder / "out"), image=str(folder / "base"))


def opened(settings: Settings, snapshot: Path) -> Snapshot:
    """The snapshot as the settings' model takes it."""
    plan = load_plan(settings.model)
    return open_snapshot(snapshot, plan.features, edge_types=plan.edge_types or None)


def in_memory(settings: Settings, snapshot: Path) -> int:
    """Build the image as one epoch of one task; the number of vertices."""
    settings = replace(settings, tasks=(settings.parts,))
    return build_image(settings, opened(settings, snapshot).blocks(BLOCK_ROWS))


def out_of_core(settings: Settings, snapshot: Path, memory: int = 1 << 24) -> ImageReport:
    """Build the image part by part."""
    work = Path(settings.image).with_name("work")
    made = InitialImage(settings, load_plan(settings.model), work, memory)
    return made.run(lambda: opened(settings, snapshot).blocks(BLOCK_ROWS))


def image_files(settings: Settings) -> dict[str, object]:
    """What the image holds, by the paths of its files.

    How parts share tasks shows in how much room pools had, and in the order in which a Sink learns texts; neither
    matters.
    """
    base = Path(settings.image)
    files: dict[str, object] = {}
    for path in sorted(base.rglob("*")):
        name = str(path.relative_to(base))
        if path.suffix == ".bin" and not ("sink" in name and settings.parts > 1 and path.name.startswith("names")):
            files[name] = path.read_bytes()
        elif path.suffix == ".json":
            manifest = orjson.loads(path.read_bytes())
            files[name] = manifest["format"], manifest["epoch"]
            for table, entry in manifest["tables"].items():
                files[f"{name}:{table}"] = entry["dtype"], entry["shape"]
                if table.split(".")[-1] not in _POOLS:
                    files[f"{name}:{table} rows"] = entry["rows"]
    assert files
    return files


def epoch_0(settings: Settings) -> list[dict[str, object]]:
    """The rows of the change log, by id."""
    files = sorted((Path(settings.out) / "embeddings").glob("[!._]*.parquet"))
    rows = pa.concat_tables([pq.read_table(file) for file in files]).to_pylist() if files else []
    return sorted(rows, key=lambda row: row["id"])

"""A base image that is made part by part: with little memory, through kills, and refused where files are damaged."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from freshet.gnn.kinds.model import KindsModel, build_kinds_model
from freshet.operators.embed.files import EmbedError
from freshet.operators.factory import load_plan
from freshet.operators.initial.image import InitialImage
from freshet.operators.settings import Settings
from freshet.operators.snapshot.reader import SnapshotError
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.kind_streams import random_records, save_records
from tests.support.graphs.kinds import text_id
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.random_graphs import random_graph
from tests.support.stages.embedded import write_graph
from tests.support.stages.images import epoch_0, image_files, image_settings, in_memory, opened, out_of_core
from tests.unit.job.results.test_kinds_jobs import with_attributes, without_features
from tests.unit.operators.storage.test_kinds import by_degrees, different_convs, side_by_side, two_layers
from tests.unit.operators.storage.test_pairs import exported

LAYERS = [
    conv("gcn_conv", IN_WIDTH, 8),
    {"type": "relu"},
    conv("gat_conv", 8, 5),
    conv("sage_conv", 5, 3, aggr=["mean", "max"]),
]
MODEL = make_model(3, LAYERS)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(tmp_path_factory.mktemp("graph") / "S", random_graph(2, vertices=300, edges=2000))


def told(snapshot: Path, folder: Path, parts: int = 3) -> Settings:
    return image_settings(MODEL, snapshot, folder, parts, strategy="hdrf", hash_seed=1)


@pytest.fixture(scope="module")
def whole(snapshot: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], object]:
    """The image and the embeddings that are made in memory."""
    settings = told(snapshot, tmp_path_factory.mktemp("whole"))
    in_memory(settings, snapshot)
    return image_files(settings), epoch_0(settings)


@pytest.mark.parametrize("memory", [1, 20_000, 1 << 24])
def test_the_bits_do_not_depend_on_memory(
    snapshot: Path, whole: tuple[dict[str, object], object], memory: int, tmp_path: Path
) -> None:
    settings = told(snapshot, tmp_path)
    report = out_of_core(settings, snapshot, memory)
    assert (report.vertices, report.edges, report.resumed) == (
        300,
        len(random_graph(2, vertices=300, edges=2000).src),
        False,
    )
    assert (image_files(settings), epoch_0(settings)) == whole


class Enough(Exception):
    """Stands for a kill."""


def test_it_goes_on_behind_every_finished_step(
    snapshot: Path, whole: tuple[dict[str, object], object], tmp_path: Path
) -> None:
    settings, plan = told(snapshot, tmp_path), load_plan(told(snapshot, tmp_path).model)
    work, lines = tmp_path / "work", list[str]()

    def attempt(stop: Callable[[str], bool]) -> bool:
        def tell(line: str) -> None:
            lines.append(line)
            if stop(line):
                raise Enough

        made = InitialImage(settings, plan, work, 1, tell)
        return made.run(lambda: opened(settings, snapshot).blocks()).resumed

    stops = [
        "reading",
        "partitioning",
        "storage0, part 2",
        "storage1, part 1",
        "tail1, part 3",
        "storage3",
        "tail3",
        "sink",
    ]
    for wanted in stops:
        with pytest.raises(Enough):
            attempt(lambda line, wanted=wanted: line.startswith(wanted))  # type: ignore[misc]
    lines.clear()
    assert attempt(lambda _: False)
    assert [line.split(",")[0] for line in lines] == ["sink"] * 3  # and nothing else again
    assert (image_files(settings), epoch_0(settings)) == whole


@pytest.mark.parametrize("damaged", ["sent-1-0", "topology-1/add_src.bin", "events/x.bin"])
def test_files_that_are_not_what_was_written_are_refused_by_name(damaged: str, snapshot: Path, tmp_path: Path) -> None:
    settings = told(snapshot, tmp_path)
    stop = "storage0, part 2" if "events" in damaged else "storage2"

    def tell(line: str) -> None:
        if line.startswith(stop):
            raise Enough

    plan, work = load_plan(settings.model), tmp_path / "work"
    with pytest.raises(Enough):
        InitialImage(settings, plan, work, 1, tell).run(opened(settings, snapshot).blocks)
    path = work / damaged
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(EmbedError, match=f"{path.name}: does not match its checksum"):
        InitialImage(settings, plan, work, 1).run(opened(settings, snapshot).blocks)


def test_types_and_attr_come_together_from_all_blocks_and_bad_edges_are_refused(tmp_path: Path) -> None:
    x = np.eye(4, IN_WIDTH, dtype=np.float32)
    src, dst = [0, 0, 1, 0, 2, 3, 3, 1, 2], [1, 1, 2, 1, 2, 0, 1, 0, 3]
    types = ["a", "b", None, "a", "b", None, None, "c", "d"]
    write_snapshot(tmp_path / "S", range(4), x, src, dst, np.arange(1, 10), edge_type=types)
    model = make_model(1, [conv("graph_conv", IN_WIDTH, 3)])
    made = []
    for name, build in (("whole", in_memory), ("ours", out_of_core)):
        settings = image_settings(model, tmp_path / "S", tmp_path / name, 1, hash_seed=1)
        build(settings, tmp_path / "S")
        made.append((image_files(settings), epoch_0(settings)))
    assert made[0] == made[1]
    write_snapshot(tmp_path / "L", [1, 7], np.ones((2, IN_WIDTH)), [7, 7], [7, 7], edge_type=["a", "b"])
    gcn = make_model(1, [conv("gcn_conv", IN_WIDTH, 3)])
    with pytest.raises(SnapshotError, match="7 -> 7: a self-loop of a second edge type"):
        out_of_core(image_settings(gcn, tmp_path / "L", tmp_path / "loops", 1), tmp_path / "L")


def test_graphs_without_edges_and_without_vertices(tmp_path: Path) -> None:
    none = np.empty(0, np.int64)
    for name, ids in (("edgeless", [5, 6, 7]), ("empty", [])):
        snapshot = tmp_path / name
        write_snapshot(snapshot, np.array(ids, np.int64), np.ones((len(ids), IN_WIDTH)), none, none)
        made = []
        for way, build in (("memory", in_memory), ("disk", out_of_core)):
            settings = told(snapshot, tmp_path / f"{name}-{way}", 2)
            build(settings, snapshot)
            made.append((image_files(settings), epoch_0(settings)))
        assert made[0] == made[1]
        assert len(made[1][1]) == len(ids)  # type: ignore[arg-type]


def test_a_full_disk_is_an_error_by_name_and_the_next_attempt_goes_on(
    snapshot: Path, whole: tuple[dict[str, object], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, calls = told(snapshot, tmp_path), 0
    fallocate = os.posix_fallocate

    def full(*given: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        fallocate(*given)

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(EmbedError, match="no room left on the disk"):
            out_of_core(settings, snapshot)
    assert out_of_core(settings, snapshot).resumed
    assert (image_files(settings), epoch_0(settings)) == whole


def returning(model: KindsModel, *kinds: str) -> KindsModel:
    return build_kinds_model(**model.declaration() | {"out": list(kinds)}, weights=model.weights)


@pytest.mark.parametrize(
    ("make", "parts", "id_of"),
    [
        (lambda: two_layers("item"), 3, int),
        (lambda: returning(different_convs(), "item"), 1, text_id),
        (lambda: returning(different_convs(), "user"), 3, text_id),
        (side_by_side, 3, int),
        (by_degrees, 1, text_id),
        (by_degrees, 3, int),
        (lambda: exported("max")[1], 3, int),
        (lambda: exported("sum")[1], 1, text_id),
        (without_features, 1, int),
        (with_attributes, 3, text_id),
    ],
    ids=[
        "sums",
        "convs, one part",
        "convs",
        "side by side",
        "degrees, one part",
        "degrees",
        "many relations",
        "many relations, one part",
        "learned rows alone, one part",
        "learned rows",
    ],
)
def test_images_with_kinds_are_those_made_in_memory(
    make: Callable[[], KindsModel], parts: int, id_of: Callable[[int], object], tmp_path: Path
) -> None:
    model = make()
    assert model.features.kinds is not None
    save_records(tmp_path, random_records(model.features.kinds, 5, 400, id_of))
    made = []
    for way, build in (("memory", in_memory), ("disk", lambda *given: out_of_core(*given, memory=1))):
        settings = image_settings(model, tmp_path, tmp_path / way, parts, strategy="hdrf", hash_seed=1)
        build(settings, tmp_path)
        made.append((image_files(settings), epoch_0(settings)))
    assert made[0][1] == made[1][1] and made[0][1]
    if len(model.relations) > 8:  # tails number pairs as they come, which blocks of several parts do in another order
        made = [
            ({name: one for name, one in files.items() if not name.startswith("tail")}, rows) for files, rows in made
        ]
    assert not {name for name in made[0][0] if made[0][0][name] != made[1][0].get(name)}
    assert made[0] == made[1]

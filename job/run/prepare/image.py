"""The last step of a new job: its base image, taken over from the snapshot or computed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from freshet.files.whole import sync_tree
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.plan import Plan
from freshet.job.console import say
from freshet.job.errors import JobFailed
from freshet.job.folder.begun import write_begun
from freshet.job.run.prepare.model import Start
from freshet.operators.base_image import build_image
from freshet.operators.embed.files import EmbedError
from freshet.operators.factory import load_plan
from freshet.operators.initial.image import InitialImage
from freshet.operators.settings import Settings
from freshet.operators.snapshot.reader import Snapshot
from freshet.state.memory.machine_memory import available_memory

_WORK = ".work"  # in the folder of images, while they are made


def make_image(settings: Settings, start: Start | None) -> None:
    """Take the snapshot's image over, or make one; IMAGE_DONE says that it is whole.

    Raises: SnapshotError for bad rows; JobFailed for a full disk.
    """
    folder, out = Path(settings.image), Path(settings.out)
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    if start is None:
        build_image(settings, ())
    elif start.made is not None:
        start.made.start(out)
        say(f"snapshot: {start.made.vertices:,} vertices, state taken over in {time.perf_counter() - began:.1f} s")
    else:
        plan = load_plan(settings.model)
        if isinstance(plan, KindsPlan):
            vertices = build_image(settings, start.graph.blocks(), say)
        else:
            vertices = _compute(settings, plan, start.graph, folder / _WORK)
        say(f"snapshot: {vertices:,} vertices, embeddings computed in {time.perf_counter() - began:.1f} s")
    sync_tree(folder)
    write_begun(out)


def _compute(settings: Settings, plan: Plan, graph: Snapshot, work: Path) -> int:
    """Compute the image of a graph; return the number of its vertices."""

    def tell(line: str) -> None:
        if not line.startswith("reading"):  # one a block
            say(line)

    try:
        image = InitialImage(settings, plan, work, available_memory() // 2, tell)
        report = image.run(graph.blocks)
    except EmbedError as error:
        raise JobFailed(str(error)) from None
    shutil.rmtree(work)
    return report.vertices

"""The last step of a new job: its base image, taken over from the snapshot or computed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from freshet.files.whole import sync_tree
from freshet.job.console import say
from freshet.job.errors import JobFailed
from freshet.job.folder.run_file import write_begun
from freshet.job.run.prepare.model import Start
from freshet.operators.base_image import build_image, write_initial_image
from freshet.operators.embed.files import EmbedError
from freshet.operators.initial.image import ImageReport
from freshet.operators.settings import Settings
from freshet.operators.snapshot.reader import OF_EMBED, Snapshot
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
        if repeats := dict(start.graph.info.get(OF_EMBED, {})).get("replaced"):
            say(start.graph.repeats_in_words(repeats))
        say(f"snapshot: {start.made.vertices:,} vertices, state taken over in {time.perf_counter() - began:.1f} s")
    else:
        made = _compute(settings, start.graph, folder / _WORK)
        if made.replaced:
            say(start.graph.repeats_in_words(made.replaced))
        say(f"snapshot: {made.vertices:,} vertices, embeddings computed in {time.perf_counter() - began:.1f} s")
    sync_tree(folder)
    write_begun(out)


def _compute(settings: Settings, graph: Snapshot, work: Path) -> ImageReport:
    """Compute the image of a graph."""

    def tell(line: str) -> None:
        if not line.startswith("reading"):  # one a block
            say(line)

    try:
        report = write_initial_image(settings, graph.blocks, work, available_memory() // 2, tell)
    except EmbedError as error:
        raise JobFailed(str(error)) from None
    shutil.rmtree(work, ignore_errors=True)
    return report

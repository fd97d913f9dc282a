"""An estimate as text."""

from __future__ import annotations

from freshet.job.size.estimate import Estimate
from freshet.job.units import readable


def page(found: Estimate) -> str:
    """Return the estimate as lines for people."""
    operators = [(name, size, "") for name, size in found.operators.items()]
    memory = [
        *operators,
        (
            "all operators",
            found.tables,
            "over all processes; pages that change beside a checkpoint are there twice",
        ),
        ("buffers", found.buffers, "change log until a file of it is written, and inboxes"),
        (
            "each process",
            found.process,
            "Python and libraries; Java comes on top: docs/reference/memory.md",
        ),
        ("server", found.server, "shared memory of each `freshet serve`; twice that while its table grows"),
    ]
    disk = [
        ("change log", found.change_log, "each vertex once"),
        ("", found.change_log_per_million_rows, "per million rows that change"),
        ("tails", found.tails, "at most, in OUT/tables"),
        ("base image", found.base_image, "of a job that starts from a snapshot"),
        ("checkpoint", found.checkpoint, "each, beside the journal"),
        ("journal", found.journal, "at most, in each checkpoint, at a high rate of events"),
    ]
    lines = ["memory", *map(_line, memory), "disk", *map(_line, disk)]
    return "\n".join(line.rstrip() for line in lines)


def _line(row: tuple[str, int, str]) -> str:
    name, size, note = row
    return f"  {name:14} {readable(size):>10}  {note}"

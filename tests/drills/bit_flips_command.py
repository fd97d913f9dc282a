"""`scripts/drills/flip_bits.py`: damaged states and snapshots from the command line."""

from __future__ import annotations

import tempfile
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Annotated

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED
from tests.drills.bit_flips import Drill, embed_drill, flink_drill, local_drill
from tests.support.runs.judge import say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Kind(StrEnum):
    """What is damaged."""

    LOCAL = "local"
    SAVEPOINT = "savepoint"
    CHECKPOINT = "checkpoint"
    ENTRIES = "entries"
    EMBED = "embed"


def _drill(kind: Kind, folder: Path) -> Drill:
    match kind:
        case Kind.LOCAL:
            return local_drill(folder)
        case Kind.EMBED:
            return embed_drill(folder)
        case _:
            return flink_drill(folder, savepoint=kind is not Kind.CHECKPOINT, checksums=kind is not Kind.ENTRIES)


@app.command()
def flip_bits(
    kind: Annotated[Kind, typer.Argument(help="entries: a savepoint without the checksums of its files.")],
    seed: Annotated[int, typer.Option(help="Draws files and bits.")] = 1,
    flips: Annotated[int, typer.Option(min=1, help="How many files are damaged, one at a time.")] = 60,
    work: Annotated[Path | None, typer.Option(help="Where a temporary folder is made.")] = None,
) -> None:
    """Flip three bits of one file of a state or snapshot, go on from it, and compare all rows with a run without.

    The last line on stdout says in JSON how many were refused, had no effect, or gave wrong rows; exit 1 for those.
    """
    with tempfile.TemporaryDirectory(dir=work) as name:
        drill = _drill(kind, Path(name))
        try:
            found = drill.run(flips, Random(seed), say)
        finally:
            drill.job.end()
    print(orjson.dumps({"kind": kind, "seed": seed, "flips": flips} | found.as_dict()).decode())
    if found.wrong:
        raise typer.Exit(EXIT_CHECK_FAILED)

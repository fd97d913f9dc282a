"""The folders below `--out` that operators write; all that lies there is named in `job.folder.layout`."""

from __future__ import annotations

import os
from pathlib import Path

EMBEDDINGS = "embeddings"  # the change log: rows of vertices by epoch
EPOCHS = "epochs"  # with which input each epoch ends
STATUS = "status"  # what operators tell about themselves while they run
TABLES = "tables"  # what readers in other processes map: the tails, and the table that a server makes of them
TAILS = "tables/tail"  # the newest epochs, part by part

TAIL = "tail"  # the same below a folder that stands for TABLES
TABLES_VARIABLE = "FRESHET_TABLES"


def tails_of(out: Path, tables_folder: str) -> Path:
    """Return this machine's folder of a job's recent changes: below `--out`, or as the environment names it."""
    given = os.environ.get(TABLES_VARIABLE) or tables_folder
    return Path(given) / TAIL if given else out / TAILS

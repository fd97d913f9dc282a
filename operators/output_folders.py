"""The folders below `--out` that operators write; all that lies there is named in `job.folder.layout`.

On a cluster without a shared folder, only the process that started the job has the output folder. Other processes then
write what they tell of themselves (status, tracebacks) to a folder of their machine, and rows leave by topics alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import orjson

EMBEDDINGS = "embeddings"  # the change log: rows of vertices by epoch
EPOCHS = "epochs"  # with which input each epoch ends
STATUS = "status"  # what operators tell about themselves while they run
TABLES = "tables"  # what readers in other processes map: the tails, and the table that a server makes of them
TAILS = "tables/tail"  # the newest epochs, part by part

JOB_FILE = "job/job.json"  # of the output folder: whose it is
TAIL = "tail"  # the same below a folder that stands for TABLES
TABLES_VARIABLE = "FRESHET_TABLES"


def tails_of(out: Path, tables_folder: str) -> Path:
    """Return this machine's folder of a job's recent changes: below `--out`, or as the environment names it."""
    given = os.environ.get(TABLES_VARIABLE) or tables_folder
    return Path(given) / TAIL if given else out / TAILS


def is_here(out: Path, job_id: str) -> bool:
    """Return whether this process sees the output folder of a job; the folder of another job is none."""
    try:
        found = orjson.loads((out / JOB_FILE).read_bytes())
        return bool(found["settings"]["job_id"] == job_id)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    except (ValueError, KeyError, TypeError):  # damaged: whoever needs it will say so
        return True


def home_of(out: Path, job_id: str) -> Path:
    """Return the folder in which this process writes what it tells of itself."""
    if not job_id or is_here(out, job_id):
        return out
    return Path(tempfile.gettempdir()) / f"freshet-{job_id}"

"""The folders below `--out` that operators write; all that lies there is named in `job.folder.layout`.

A model that returns several kinds of vertices has a change log for each, in `embeddings/KIND` and `epochs/KIND`, and
tables in `tables/KIND`: within these folders everything is as in those of a model that returns one. `written_kind` says
how KIND is written. A job whose embeddings are computed at the read (`--embeddings asked`) has a folder `inner` in the
place of `embeddings`, made before all else.

On a cluster without a shared folder, only the process that started the job has the output folder. Other processes then
write their own state (status, tracebacks) to a folder of their machine, and rows leave by topics alone.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import orjson

from freshet.kind_names import read_kind, written_kind

EMBEDDINGS = "embeddings"  # the change log: rows of vertices by epoch
INNER = "inner"  # the same of a job that writes rows of inner layers in the place of embeddings
EPOCHS = "epochs"  # with which input each epoch ends
STATUS = "status"  # the state of operators while they run
TABLES = "tables"  # what readers in other processes map: the tails, and the table that a server makes of them
TAIL = "tail"  # in a folder of tables: the newest epochs, part by part

JOB_FILE = "job/job.json"  # of the output folder: whose it is
TABLES_VARIABLE = "FRESHET_TABLES"


@dataclass(frozen=True, slots=True)
class LogFolders:
    """Folders of a change log: of the only one, or of that of a kind where a model returns several."""

    out: Path
    kind: str = ""

    @property
    def embeddings(self) -> Path:
        """The rows of vertices by epoch: embeddings, or rows of inner layers where the job has a folder of these."""
        inner = self.out / INNER
        return (inner if inner.is_dir() else self.out / EMBEDDINGS) / written_kind(self.kind)

    @property
    def epochs(self) -> Path:
        """The input that each epoch ends with."""
        return self.out / EPOCHS / written_kind(self.kind)

    @property
    def tables(self) -> Path:
        """Files that readers in other processes map."""
        return self.out / TABLES / written_kind(self.kind)

    @staticmethod
    def of_tables(tables: Path) -> LogFolders:
        """Return the folders whose `tables` is this one: O/tables, or O/tables/KIND."""
        above = tables.parent
        if above.name == TABLES and (tables.name != TABLES or (above.parent / JOB_FILE).exists()):
            return LogFolders(above.parent, read_kind(tables.name))
        return LogFolders(above)


def log_id(job_id: str, kind: str) -> str:
    """Return the id of a job's change log, which no other log has: tables and servers go by it."""
    return f"{job_id}.{written_kind(kind)}" if kind else job_id


def kind_of_log(log_id: str, name: str) -> str:
    """Return the kind of the vertices of a change log, by its id; empty where it is the only one of its job.

    `name`: of the kind, if it is known, since the id may have only its beginning.
    """
    written = log_id.partition(".")[2]
    return name if name and written == written_kind(name) else read_kind(written)


def tails_of(log: LogFolders, tables_folder: str) -> Path:
    """Return this machine's folder of recent changes: below `--out`, or as the environment names it."""
    given = os.environ.get(TABLES_VARIABLE) or tables_folder
    return (Path(given) / written_kind(log.kind) if given else log.tables) / TAIL


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
    """Return the folder in which this process writes its own state."""
    if not job_id or is_here(out, job_id):
        return out
    return Path(tempfile.gettempdir()) / f"freshet-{job_id}"

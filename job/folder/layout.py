"""Names in the output folder (`--out`) and in the folder of a job's checkpoints, each defined once.

The names are relative: `out / SAVED_JOB`. What a file holds is known by the module named beside it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from freshet.job.errors import UsageError
from freshet.job.kafka.address import is_kafka
from freshet.job.uris import folder_here, is_remote, local_path
from freshet.operators import output_folders
from freshet.operators.epochs.retention import TOLD_FILE

LOCK = ".lock"  # held by whoever works on the folder (lock)
RUN = "run.json"  # what the run is and where to reach it (run_file)
STOP = "stop.json"  # the request of `freshet stop` (stop_file)
DEAD_LETTERS = "dead_letters.jsonl"  # rejected records, where --dead-letters names nothing else
# What operators write has its names there.
EMBEDDINGS, INNER, EPOCHS = output_folders.EMBEDDINGS, output_folders.INNER, output_folders.EPOCHS
STATUS = output_folders.STATUS
TABLES = output_folders.TABLES

JOB = "job"  # the folder of what is decided when a job begins
STOPPING = "job/.stop.lock"  # held by whoever has Flink stop the job (lock)
PLACE = "job/place.json"  # where a cluster has the job, until an end is recorded (run_file)
SAVED_JOB = output_folders.JOB_FILE  # what a resume needs (job_file); not Flink's SPEC, whose file has the same name
CHUNKS = "job/chunks.jsonl"  # the reading plan of the files
START = "job/start.json"  # where files begin that the snapshot covers in part (run.positions)
IN_TOPIC = "job/embeddings_in_topic"  # says that the topic has the embeddings of the snapshot (run.topic_start)

IMAGE = "base"  # base images, a folder for each operator and part
IMAGE_DONE = "base/complete"  # says that they are whole
STATE = "state"  # durable state in the local runtime

CHECKPOINTS = "checkpoints"  # Flink's, where --checkpoint-dir names no other folder
LOGS = "logs"  # of Flink, the Java process, and Python's tracebacks
TMP = "tmp"  # of Flink, while it runs
PLUGINS = "tmp/plugins"  # Flink's
TOPICS_SEEN = "job/topics-seen.json"  # of the topics that it writes, before it did (kafka.topic_owner)
IDLE = "tmp/idle"  # stays empty: the source of --stay watches it

# Below the folder of checkpoints, wherever that is:
SPEC = "job.json"  # what Flink's job was built from (flink.job_spec)
CUT_LOG = "cuts"
SAVEPOINTS = "savepoints"
EXPORTS = "exports"  # savepoints of exports that run: a folder each, so deep that none is taken for the job's
RETAINED = TOLD_FILE  # which checkpoints there are in another store
_JOB_ID = re.compile(r"[0-9a-f]{16}")


def name_of_job(given: str | None, out: Path) -> str:
    """Return the name of a job in Flink and in metrics: --name, else the last folder of --out."""
    folder = Path(os.path.abspath(out)).name or "freshet"
    return given or "".join(one if one.isprintable() else "_" for one in folder)


def out_here(value: Path) -> Path:
    """Return the folder of --out, as a callback of the command line.

    Raises: UsageError for the URI of another store.
    """
    try:
        return folder_here(value)
    except ValueError as error:
        msg = f"--out: {error}"
        raise UsageError(msg) from None


def dead_letters_to(given: str | None, out: Path) -> str:
    """The file of rejected records, absolute, or their topic."""
    if given is not None and is_kafka(given):
        return given
    return str((Path(given) if given else out / DEAD_LETTERS).absolute())


def topic_ended(out: Path, source: int) -> Path:
    """The file that says that a bounded topic, by its place among the sources, was read to its end."""
    return out / JOB / f"topic-{source}-ended"


def checkpoint_folder(checkpoint_dir: str | None, out: Path) -> Path:
    """The folder of the checkpoints, or of what lies beside them here when they go to another store."""
    return local_path(checkpoint_dir) if checkpoint_dir and not is_remote(checkpoint_dir) else out / CHECKPOINTS


def is_job_id(name: str) -> bool:
    """Return whether a folder's name is the id of a job, in a checkpoint folder that jobs share."""
    return _JOB_ID.fullmatch(name) is not None


def checkpoint_dir_of_job(checkpoint_dir: str | None, job_id: str) -> str | None:
    """The folder or URI of one job below `--checkpoint-dir`, which many may share; None: OUT/checkpoints is its own."""
    shared = (checkpoint_dir or "").rstrip("/")
    if not shared or not job_id or shared.rpartition("/")[2] == job_id:
        return shared or None
    return f"{shared}/{job_id}"

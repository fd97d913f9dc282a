"""The place of a job's cut log: a folder beside its checkpoints, or a topic if these are on another store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from freshet.job.console import say
from freshet.job.folder import layout
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.uris import is_remote
from freshet.operators.epochs.config import CutLogConfig

OPENER = "freshet.job.kafka.cut_channel:open_channel"
Topics = Sequence[tuple[str, KafkaAddress]]  # of the job, each with its option


def in_this_run(cuts: CutLogConfig, checkpoints: str | None, out: Path, *, by_flink: bool) -> CutLogConfig:
    """Return where the cut log is, given what it was before; a topic stays one, and so does a folder."""
    folder = layout.checkpoint_folder(checkpoints, out)
    return replace(
        cuts,
        folder=str(folder / layout.CUT_LOG),
        checkpoints=str(folder) if by_flink else "",
        checkpoints_away=by_flink and is_remote(checkpoints or ""),
    )


def of_new_job(cuts: CutLogConfig, topics: Topics, properties: ClientProperties, job_id: str) -> CutLogConfig:
    """Make the topic of a job whose checkpoints are on another store, if it has brokers.

    Raises: JobFailed where they refuse it.
    """
    if not cuts.checkpoints_away:
        return cuts
    if not topics:
        say(
            f"warning: --checkpoint-dir is on another store, but the cut log is in {cuts.folder}, on this one, since "
            "the job has no topic; to go on from another machine, keep --out on a file system that both have"
        )
        return cuts
    from freshet.job.kafka.cut_topic import address_of, make_cut_topic

    address = address_of(job_id, topics)
    topic_id = make_cut_topic(address, properties, say)
    return replace(cuts, topic=str(address), topic_id=topic_id, opener=OPENER)


def of_resumed_job(
    cuts: CutLogConfig, topics: Topics, properties: ClientProperties, job_id: str, out: Path
) -> CutLogConfig:
    """Find a cut log that is a topic where today's options have the brokers.

    Raises: UsageError where it is gone, or is another one; JobFailed without brokers.
    """
    if not cuts.topic:
        return cuts
    from freshet.job.kafka.cut_topic import address_of, check_cut_topic

    address = address_of(job_id, topics) if topics else KafkaAddress.parse(cuts.topic)
    check_cut_topic(address, cuts.topic_id, out, properties, say)
    return replace(cuts, topic=str(address))

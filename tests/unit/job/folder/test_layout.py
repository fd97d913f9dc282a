"""Where things lie in the output folder and in folders that jobs share."""

from __future__ import annotations

from pathlib import Path

from freshet.job.folder import layout
from freshet.job.folder.layout import checkpoint_dir_of_job, checkpoint_folder, dead_letters_to

OUT = Path("/O")


def test_no_two_names_of_the_output_folder_are_the_same() -> None:
    below_checkpoints = {"SPEC", "CUT_LOG", "SAVEPOINTS", "RETAINED"}
    names = {name: value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)}
    assert {"RUN", "SAVED_JOB", "EPOCHS", "EMBEDDINGS", "STATUS", *below_checkpoints} <= names.keys()
    for chosen in (below_checkpoints, names.keys() - below_checkpoints):
        assert len({names[name] for name in chosen}) == len(chosen)


def test_rejected_records_go_to_a_file_below_the_output_folder_unless_told() -> None:
    assert dead_letters_to(None, OUT) == "/O/dead_letters.jsonl"
    assert dead_letters_to("/elsewhere/bad.jsonl", OUT) == "/elsewhere/bad.jsonl"
    assert dead_letters_to("kafka://h:1/t", OUT) == "kafka://h:1/t"


def test_checkpoints_lie_below_the_output_folder_unless_told() -> None:
    assert checkpoint_folder(None, OUT) == Path("/O/checkpoints")
    assert checkpoint_folder("/shared", OUT) == checkpoint_folder("file:///shared", OUT) == Path("/shared")
    assert checkpoint_folder("s3://bucket/job", OUT) == Path("/O/checkpoints"), "what Freshet keeps beside them"


def test_each_job_has_a_folder_of_its_own() -> None:
    job = "0123456789abcdef"
    assert checkpoint_dir_of_job(None, job) is None, "OUT/checkpoints is one job's"
    assert checkpoint_dir_of_job("/shared/", job) == f"/shared/{job}"
    assert checkpoint_dir_of_job(f"/shared/{job}", job) == f"/shared/{job}"
    assert checkpoint_dir_of_job("s3://bucket/all", job) == f"s3://bucket/all/{job}"
    assert checkpoint_dir_of_job("file:///shared", job) == f"file:///shared/{job}"

"""What is done can be read soon, with real Flink: when the stream pauses, and after a kill at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from freshet.job.flink.checkpoints import complete_states
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import complete_epoch, progress
from tests.support.runs.jobs import Input, Job, epochs_shown, make_input, read_log

pytestmark = pytest.mark.slow
Make = Callable[[Input], Job]

PUBLISH_WITHIN_S = 10.0  # the default
SLACK_S = 30.0  # on a machine that does other things, too; nothing but that limit closes a file in a pause
# Markers and checkpoints: a marker closes the files, too, but none comes in a pause.
SHAPE = ("--stay", "--parts", 2, "--epoch-events", 40, "--checkpoint-interval", "2s")


def last_readable(out: Path) -> int:
    """The last epoch that epochs/ holds."""
    files = (out / "epochs").glob("epochs-*.parquet")
    return max((int(pq.read_table(path)["epoch"][-1].as_py()) for path in files), default=0)


def newest_checkpoint(out: Path) -> int:
    """The number of the newest one that is complete."""
    return max((int(state.name.removeprefix("chk-")) for state in complete_states(out / "checkpoints")), default=0)


def test_what_came_before_a_pause_is_readable(job: Make, tmp_path: Path) -> None:
    """The input ends with an epoch that is full, so nothing is left to seal, and nothing comes after it."""
    one = job(make_input(tmp_path / "input", 400))
    one.start(*SHAPE)
    epoch = 10
    one.until_epoch(epoch)
    began = time.monotonic()
    one.until(lambda: last_readable(one.out) >= epoch <= complete_epoch(one.out))
    took_s = time.monotonic() - began
    print(f"readable after {took_s:.1f} s")
    assert took_s < PUBLISH_WITHIN_S + SLACK_S
    assert read_log(one.out).last == epoch
    time.sleep(PUBLISH_WITHIN_S + 3)
    one.until(lambda: progress(one.out)["epoch"] == last_readable(one.out))
    now = last_readable(one.out)
    assert now <= epoch + 1, "one empty epoch at most, once"
    assert one.stop().code == 0
    ended = one.wait()
    assert ended.result["applied_ms_p99"] <= ended.result["latency_ms_p99"] < 1e3 * (PUBLISH_WITHIN_S + SLACK_S)
    assert one.check()["epoch"] == now


def test_a_kill_after_the_end_of_the_input(job: Make, tmp_path: Path) -> None:
    """As if it had come when the last epoch was cut and its files were not written yet."""
    one = job(make_input(tmp_path / "input", 390))
    one.start(*SHAPE)
    epoch = 10
    one.until_epoch(epoch)
    one.until(lambda: complete_epoch(one.out) >= epoch)  # in the files of both parts
    seen, shown = read_log(one.out), epochs_shown(one.out)
    behind = newest_checkpoint(one.out) + 2  # one that was begun since has the end of the input behind it
    one.until(lambda: newest_checkpoint(one.out) >= behind)
    one.kill()
    newest = [sorted((one.out / "embeddings").glob(f"part-{part}-*.parquet"))[-1] for part in range(2)]
    for path in newest:
        path.unlink()
    one.start("--stay", "--resume", "latest")
    one.until(lambda: read_run(one.out)["state"] == "running")
    one.until(lambda: complete_epoch(one.out) >= epoch and all(path.exists() for path in newest))
    again = read_log(one.out)
    assert again.id.tolist() == seen.id.tolist()
    assert again.vector.tobytes() == seen.vector.tobytes()
    assert len(shown) > 5 and shown.items() <= epochs_shown(one.out).items(), "times, too, are as they were seen"
    assert one.stop().code == 0
    one.wait()
    assert one.check()["epoch"] >= epoch

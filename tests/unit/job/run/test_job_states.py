"""The state that a job goes on from: the newest one, which is refused by name where it was damaged since."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from freshet.job.errors import UsageError
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.state_files import checksums_file, record
from freshet.job.folder import run_file
from freshet.job.run.job_states import FormerCheckpoints, JobStates
from tests.support.flink.metadata import metadata

JOB = "0123456789abcdef"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def latest(out: Path) -> str | None:
    return JobStates(out, JOB, None, "--resume").latest()


def checkpoint(path: Path, when: int, data: bytes = b"") -> Path:
    path.mkdir(parents=True)
    (path / "_metadata").write_bytes(metadata(data))
    (path / "a state").write_bytes(b"pages")
    os.utime(path / "_metadata", (when, when))
    record(path)
    return path


def lose(path: Path) -> str:
    path.unlink()
    return "is missing"


def halve(path: Path) -> str:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return "bytes, expected"


def flip(path: Path) -> str:
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 4]) + data[1:])
    return "does not match its checksum"


def test_former_checkpoints_go_once_the_new_attempt_has_one_of_its_own(out: Path) -> None:
    checkpoints = out / "checkpoints"
    old = [checkpoint(checkpoints / (job * 32) / "chk-3", when) for job, when in (("a", 100), ("b", 200))]
    saved = checkpoint(checkpoints / "savepoints" / "savepoint-1", 50)
    own = checkpoint(checkpoints / ("c" * 32) / "chk-1", 300)
    spec = JobSpec(out=str(out), layers=1, resume=str(old[1]))
    states = JobStates(out, "", None, "--resume")
    former = FormerCheckpoints(spec, "latest", states)
    former.look()
    assert all(one.exists() for one in old), "it has none yet"
    former.own_checkpoint = lambda: own
    FormerCheckpoints(spec, str(old[1]), states).look()
    assert all(one.exists() for one in old), "a state that was named keeps the others"
    former.look()
    assert not any(one.exists() for one in old)
    assert own.exists()
    assert saved.exists()


@pytest.mark.parametrize("damage", [lose, halve, flip])
@pytest.mark.parametrize("name", ["_metadata", "a state", "checksums"])
@pytest.mark.parametrize("kind", ["chk-4", "savepoint-4"])
def test_a_damaged_newest_state_is_refused_and_the_one_before_it_named(
    out: Path, kind: str, name: str, damage: Callable[[Path], str]
) -> None:
    at = out / "checkpoints" / ("a" * 32)
    older = checkpoint(at / "chk-3", 100, b"older metadata")
    new = checkpoint(at / kind, 200, b"newer metadata")
    assert latest(out) == str(new)
    path = checksums_file(new) if name == "checksums" else new / name
    said = damage(path)
    if name == "checksums":
        if damage is lose:
            assert latest(out) == str(new), "its process was killed before it wrote them"
            return
        said = "checksums"
    with pytest.raises(UsageError, match=said) as refused:
        latest(out)
    assert str(path) in str(refused.value)
    assert f"go on from the one before: --resume {older}" in str(refused.value)
    assert JobStates(out, JOB, None, "--resume").named(str(older)) == str(older)
    with pytest.raises(UsageError, match=said):
        JobStates(out, JOB, None, "--resume").named(str(new))
    assert older.exists()


def test_metadata_that_is_cut_is_named_where_there_are_no_checksums_yet(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the power fails, or the JobManager dies, just after a checkpoint; Flink would say EOFException."""
    at = out / "checkpoints" / ("a" * 32)
    older, new = checkpoint(at / "chk-3", 100), checkpoint(at / "chk-4", 200, b"t\x00\x07FORWARD and more")
    checksums_file(new).unlink()
    file = new / "_metadata"
    whole = file.read_bytes()
    for size in (1, 3, 4, 7, 8, 9, 15, len(whole) // 2, *range(len(whole) - 20, len(whole))):
        file.write_bytes(whole[:size])
        os.utime(file, (200, 200))
        with pytest.raises(UsageError, match=rf"{file} is .*; go on from the one before: --resume {older}"):
            latest(out)
    file.write_bytes(bytes(len(whole)))
    os.utime(file, (200, 200))
    with pytest.raises(UsageError, match="begins with 00000000, not 4960672d"):
        latest(out)
    assert capsys.readouterr().err == ""
    file.write_bytes(whole)
    os.utime(file, (200, 200))
    assert latest(out) == str(new)
    assert f"{new}: its process ended before it took checksums" in capsys.readouterr().err
    file.write_bytes(whole[:4] + b"\0\0\0\5" + whole[8:-1])  # another format, whose end may be another
    os.utime(file, (200, 200))
    assert latest(out) == str(new)


def test_where_all_states_are_damaged_nothing_is_named(out: Path) -> None:
    for when in (100, 200):
        flip(checkpoint(out / "checkpoints" / ("a" * 32) / f"chk-{when}", when) / "a state")
    with pytest.raises(UsageError, match="there is no older one: put the file back, or begin again in a new folder"):
        latest(out)


def test_a_savepoint_moves_with_its_job(out: Path) -> None:
    checkpoint(out / "checkpoints" / ("a" * 32) / "chk-3", 100)
    saved = checkpoint(out / "checkpoints" / "savepoints" / "savepoint-1", 200)
    run_file.update_run(out, state="stopped", savepoint="/once/upon/out/checkpoints/savepoints/savepoint-1")
    assert latest(out) == str(saved)
    lose(saved / "_metadata")
    with pytest.raises(UsageError, match="savepoint-1/_metadata is missing"):
        latest(out)


def test_a_savepoint_that_the_job_stopped_with_and_that_is_gone_is_missed(out: Path) -> None:
    older = checkpoint(out / "checkpoints" / ("a" * 32) / "chk-3", 100)
    gone = checkpoint(out.parent / "elsewhere" / "savepoint-1", 200)
    run_file.update_run(out, state="stopped", savepoint=str(gone))
    shutil.rmtree(gone)
    with pytest.raises(UsageError, match=f"{gone}, is gone; .* --resume PATH, or .*--resume {older}"):
        latest(out)
    shutil.rmtree(older.parent)
    with pytest.raises(UsageError, match=f"{gone}, is gone; give where it is now, --resume PATH$"):
        latest(out)
    checkpoint(older, 100)
    run_file.update_run(out, state="running")  # and killed: its checkpoints are newer
    assert latest(out) == str(older)


def test_a_move_that_was_cut_short_leaves_a_state_that_is_whole(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = f"checkpoints/{'a' * 32}"
    named = f"file:/once/upon/a/time/{'a' * 32}/shared/5b1c".encode()
    checkpoint(out / at / "chk-3", 100, struct.pack(">H", len(named)) + named)
    places = [out.rename(out.with_name("moved"))]
    assert latest(places[-1]) == f"{places[-1]}/{at}/chk-3"
    for name in ("moved-again", "and-again"):
        places.append(places[-1].rename(out.with_name(name)))
        with monkeypatch.context() as killed:
            killed.setattr(shutil, "copystat", lambda *_: 1 / 0)  # `_metadata` is noted, and not replaced
            with pytest.raises(ZeroDivisionError):
                latest(places[-1])
    assert latest(places[-1]) == f"{places[-1]}/{at}/chk-3"
    assert f"file:{places[-1]}/checkpoints/" in (places[-1] / at / "chk-3" / "_metadata").read_text("latin-1")

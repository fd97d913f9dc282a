"""One process works on a folder at a time, and whoever comes second hears which one it is."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from freshet.gnn.model import save_model
from freshet.job import cli
from freshet.job.errors import EXIT_USAGE, UsageError
from freshet.job.folder import lock
from freshet.job.folder.lock import LOCK, is_empty, taken
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.runs.jobs import ROOT

_HOLD = """
import sys, time
from pathlib import Path
from freshet.job.folder.lock import taken
with taken(Path(sys.argv[1]), "freshet run"):
    print("taken", flush=True)
    time.sleep(600)
"""


def test_a_folder_is_made_and_an_empty_one_goes_again(tmp_path: Path) -> None:
    out = tmp_path / "a" / "O"
    with taken(out, "freshet run"):
        assert [item.name for item in out.iterdir()] == [LOCK]
        assert is_empty(out)
    assert not out.exists()
    out.mkdir()
    with taken(out, "freshet run"):
        (out / "run.json").touch()
        assert not is_empty(out)
    assert [item.name for item in out.iterdir()] == ["run.json"]


def test_what_is_no_folder_to_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "O"):
        with pytest.raises(UsageError, match="a file; expected a folder"), taken(out, "freshet run"):
            pass
    with pytest.raises(FileExistsError), taken(tmp_path / "O", "freshet run"):  # of what is done there
        raise FileExistsError


def test_a_folder_that_goes_as_it_is_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, tries = os.mkdir, []

    def make_at_last(*given: object) -> None:
        tries.append(given)
        if len(tries) == 1:
            raise FileExistsError  # it was there, and is no folder by now, for it is gone
        make(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "mkdir", make_at_last)
    with taken(tmp_path / "O", "freshet run"):
        assert is_empty(tmp_path / "O")
    assert len(tries) == 2


@pytest.mark.parametrize("command", ["run", "embed", "export"])
def test_a_second_one_is_refused_by_name_whatever_it_is(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "M")
    write_snapshot(tmp_path / "S", np.arange(2), np.zeros((2, IN_WIDTH), np.float32), np.array([0]), np.array([1]))
    (tmp_path / "e.jsonl").touch()
    (tmp_path / "J" / "job").mkdir(parents=True)
    (tmp_path / "J" / "run.json").touch()
    given = {
        "run": ["--model", "M", "--events", "e.jsonl", "--runtime", "local"],
        "embed": ["--model", "M", "--snapshot", "S"],
        "export": ["J"],
    }
    with taken(tmp_path / "O", "freshet run"):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as ended:
            cli.main([command, *given[command], "--out", "O"])
        assert is_empty(tmp_path / "O")
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (EXIT_USAGE, "")
    said = " ".join(told.err.split())
    assert re.search(
        rf"--out \S*O: process {os.getpid()} on \S+ \(freshet run, since .*\) works on it; wait for its", said
    )
    assert re.search(r"or stop it \(freshet stop \S*O\), or give another folder", said)


def test_the_kernel_gives_the_lock_of_a_killed_process_back(tmp_path: Path) -> None:
    out = tmp_path / "O"
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(out)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "taken\n"
        with pytest.raises(UsageError, match=f"process {holder.pid} on "), taken(out, "freshet run"):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
    assert [item.name for item in out.iterdir()] == [LOCK]
    with taken(out, "freshet run"):
        assert f"process {os.getpid()} on " in (out / LOCK).read_text()


def test_who_only_looks_and_stands_still_amid_that_refuses_nobody(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    look = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(look, fcntl.LOCK_SH)
    goes_on = threading.Timer(5 * lock.LETS_GO_S, os.close, [look])
    goes_on.start()
    with taken(tmp_path, "freshet run"):
        goes_on.join()


def test_readers_share_a_folder_that_nobody_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOOKS_S", 0.1)
    with lock.read(tmp_path, "freshet export"), lock.read(tmp_path, "freshet export"):
        pass
    assert is_empty(tmp_path)
    with lock.read(tmp_path, "freshet export"):
        with lock.read(tmp_path, "freshet export"):
            pass
        with pytest.raises(UsageError, match=r"freshet export, since .* works on it"), taken(tmp_path, "freshet run"):
            pass
    with (
        taken(tmp_path, "freshet run"),
        pytest.raises(UsageError, match="works on it; stop it first"),
        lock.read(tmp_path, "freshet export"),
    ):
        pass


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_lock_on_a_file_that_has_gone_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_again: bool
) -> None:
    """Whoever let go has removed the file between our open and our lock, and somebody else may have made another."""
    flock, tries = fcntl.flock, []

    def lock_late(file: int, kind: int) -> None:
        tries.append(kind)
        if len(tries) == 1:
            (tmp_path / LOCK).unlink()
            if comes_again:
                (tmp_path / LOCK).touch()
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with taken(tmp_path, "freshet run"):
        assert len(tries) == 2
        assert f"process {os.getpid()} on " in (tmp_path / LOCK).read_text()
        with pytest.raises(UsageError, match="works on it"), taken(tmp_path, "freshet embed"):
            pass


def test_many_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    """The file is removed by each that lets go, beside others that open it, and the folder with it."""
    out, inside, most, done = tmp_path / "O", [0], [0], [0]
    count = threading.Lock()

    def work() -> None:
        for _ in range(50):
            try:
                with taken(out, "freshet run"):
                    with count:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                        done[0] += 1
                    with count:
                        inside[0] -= 1
            except UsageError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    lock.OWNER_S, before = 0.0, lock.OWNER_S
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        lock.OWNER_S = before
    assert not any(thread.is_alive() for thread in threads)
    assert most == [1]
    assert done[0] > 0

"""`freshet embed --for serving --runtime flink`: the passes of a layer side by side, with the bits of one process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import orjson
import psutil
import pytest

from freshet.job.embed import folder
from freshet.job.embed.runner import EmbedOptions, embed
from freshet.job.folder import layout
from freshet.operators.embed.embedding import Embedding
from tests.support.runs.embeds import killing_steps, start_embed
from tests.support.runs.jobs import DEADLINE_S, Input, make_input

pytestmark = pytest.mark.slow
SERVING = ("--for", "serving", "--memory", "64MiB")
SPREAD = ("--runtime", "flink", "--parallelism", "2")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("input"), 2000, snapshot=True)


def embeddings(out: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in sorted((out / layout.EMBEDDINGS).iterdir())}
    assert found
    return found


def embedded(given: Input, out: Path, *options: str) -> dict[str, object]:
    """Embed for serving to the end; the JSON line."""
    process = start_embed(given, out, *SERVING, *options)
    said, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert not (out / folder.WORK).exists()
    line: dict[str, object] = orjson.loads(said.splitlines()[-1])
    return line


@pytest.fixture(scope="module")
def expected(given: Input, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Those of one process."""
    out = tmp_path_factory.mktemp("local") / "S2"
    assert embedded(given, out)["runtime"] == "local"
    return embeddings(out)


@pytest.mark.long
def test_the_bits_are_the_same_though_a_step_is_killed(
    given: Input, expected: dict[str, bytes], tmp_path: Path
) -> None:
    with killing_steps() as killed:
        line = embedded(given, tmp_path / "S2", *SPREAD, "--passes", "3")
    assert killed
    assert (line["runtime"], line["parallelism"], line["passes"]) == ("flink", 2, [3, 3])
    assert line["graduated"] == 2 * line["vertices"]
    assert [layer["counts"]["chunks"] >= 3 for layer in line["layers"]] == [True, True], "no pass was without work"
    assert line["memory_peak"] > 100 << 20
    assert embeddings(tmp_path / "S2") == expected


def started_until(given: Input, out: Path, step: str, *options: str) -> None:
    """Kill an embedding and all below it once the journal has a step."""
    process = start_embed(given, out, *SERVING, *options)
    until, journal = time.monotonic() + DEADLINE_S, out / folder.WORK / "journal.json"
    while not journal.exists() or step not in orjson.loads(journal.read_bytes()):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.005)
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(family, timeout=600)
    assert alive == []


def test_what_flink_has_begun_one_process_goes_on_with(
    given: Input, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """Flink going on with what it has begun itself is in test_embed_on_flink."""
    started_until(given, tmp_path / "S2", "layer1-1", *SPREAD, "--passes", "3")
    assert embedded(given, tmp_path / "S2", "--passes", "3")["resumed"] is True
    assert embeddings(tmp_path / "S2") == expected


class Killed(BaseException):
    """Stands for the end of the process, which is too quick for a signal here."""


def test_what_one_process_has_begun_flink_goes_on_with(
    given: Input, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = Embedding.do

    def some(self: Embedding, name: str) -> dict[str, int]:
        if name == "layer1-2":
            raise Killed
        return do(self, name)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Embedding, "do", some)
        embed(EmbedOptions(given.model, given.snapshot, tmp_path / "S2", 64 << 20, 3))
    line = embedded(given, tmp_path / "S2", *SPREAD, "--passes", "3")
    assert (line["resumed"], line["passes"]) == (True, [3, 3])
    assert embeddings(tmp_path / "S2") == expected


def test_a_budget_that_is_too_small_for_what_goes_side_by_side_is_refused(given: Input, tmp_path: Path) -> None:
    process = start_embed(given, tmp_path / "S2", "--for", "serving", "--memory", "100KiB", *SPREAD)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, errors
    assert "too little for" in errors.splitlines()[-1]

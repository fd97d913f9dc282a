"""What a job keeps for its life, what may change when it goes on, and where its state is looked for."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.files.json_file import write_json
from freshet.gnn.model import save_model
from freshet.job.errors import UsageError
from freshet.job.flink.checkpoints import follow_move, prune, replace_paths
from freshet.job.flink.state_files import damage_of, record
from freshet.job.folder import run_file
from freshet.job.folder.layout import checkpoint_folder
from freshet.job.machine.processes import began_s
from freshet.job.options import run_config
from freshet.job.options.config_file import load_run_config
from freshet.job.options.run_config import option_name
from freshet.job.run.job_states import JobStates
from freshet.job.run.new_job import prepare
from freshet.job.run.outputs import outlet_settings
from freshet.job.run.resume import has_finished, options_for_life, resume, state_to_resume
from freshet.job.run.runner import spec_of
from freshet.job.run.stop import stop
from freshet.operators.epochs.cut import Cut
from freshet.operators.parser.stages import read_plan
from freshet.operators.settings import OutletConfig
from tests.support.graphs.models import IN_WIDTH, conv, make_model

EVENTS = b"".join(orjson.dumps({"op": "add_edge", "src": n, "dst": n + 1}) + b"\n" for n in range(20))


def flags(folder: Path, **options: Any) -> dict[str, Any]:
    return {"model": folder / "model", "events": [str(folder / "events.jsonl")], "out": folder / "out", **options}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job that was prepared and not run."""
    folder = tmp_path_factory.mktemp("begun")
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), folder / "model")
    (folder / "events.jsonl").write_bytes(EVENTS)
    config = load_run_config(flags(folder, parts=2, parallelism=2, epoch_ms=0, partitioner="hdrf"))
    prepare(config, folder / "out")
    run_file.update_run(folder / "out", pids={}, state="stopped")
    return folder


@pytest.fixture
def folder(begun: Path, tmp_path: Path) -> Path:
    """A copy of it, elsewhere."""
    shutil.copytree(begun, tmp_path / "copy")
    return tmp_path / "copy"


def resumed(folder: Path, **options: Any) -> Any:
    return resume(load_run_config(flags(folder, resume="latest", **options)), folder / "out")


def id_of(folder: Path, out: str | Path = "out") -> str:
    return str(orjson.loads((folder / out / "job" / "job.json").read_bytes())["settings"]["job_id"])


def state(config: Any, folder: Path, out: str | Path = "out") -> str | None:
    states = JobStates(folder / out, id_of(folder, out), config.checkpoint_dir, "--resume")
    return state_to_resume(config.resume, states)


def test_paths_follow_the_folders_and_options_stay(folder: Path, begun: Path) -> None:
    config, job = resumed(folder)
    settings = job.settings
    for path in (settings.model, settings.out, settings.image, settings.chunks, settings.cuts.folder):
        assert Path(path).is_relative_to(folder)
    assert {Path(chunk.path) for chunk in read_plan(Path(settings.chunks))} == {folder / "events.jsonl"}
    assert settings.sources == (str(begun / "events.jsonl"),), "the change log goes on with the names that it has"
    assert (config.parallelism, config.epoch_ms, settings.sealing.epoch_ms, settings.parts) == (2, 0, 0, 2)
    assert settings.partitioning.strategy == "hdrf"
    assert job.sources.records == 20


def test_the_seed_of_its_hashes_is_drawn_with_the_job_and_stays(folder: Path, tmp_path: Path) -> None:
    saved = orjson.loads((folder / "out" / "job" / "job.json").read_bytes())["settings"]["partitioning"]
    _, job = resumed(folder)
    assert (
        job.settings.partitioning.hash_seed == saved["hash_seed"] == resumed(folder)[1].settings.partitioning.hash_seed
    )
    other = prepare(load_run_config(flags(folder) | {"out": tmp_path / "other"}), tmp_path / "other")
    assert other.settings.partitioning.hash_seed != saved["hash_seed"]


def test_epochs_may_change_from_the_next_one_on(folder: Path) -> None:
    _, job = resumed(folder, epoch_events=5, epoch_ms=7, parallelism=1)
    assert (job.settings.sealing.epoch_events, job.settings.sealing.epoch_ms) == (5, 7)
    assert job.settings.parsing.block_events == 1000, "the Parser's blocks stay: the local runtime counts them"
    config, job = resumed(folder)
    assert (job.settings.sealing.epoch_events, config.parallelism) == (5, 1), "as in the attempt before"


def test_epochs_may_begin_to_adapt_and_cease(folder: Path) -> None:
    def sealing(**options: Any) -> tuple[float, int]:
        told = resumed(folder, **options)[1].settings.sealing
        return told.latency_target_ms, told.epoch_events

    with pytest.raises(UsageError, match=r"--latency-target 50ms: .*--epoch-ms 0.*--latency-target off"):
        resumed(folder, latency_target="50ms")  # the job has --epoch-ms 0
    assert sealing() == (0, 1000), "what was refused is not kept"
    assert sealing(latency_target="50ms", epoch_ms=20) == (50, 10_000)
    assert sealing() == (50, 10_000)
    assert sealing(latency_target="20ms", epoch_events=500) == (20, 500)
    with pytest.raises(UsageError, match=r"--latency-target 20ms: .*--epoch-ms 0"):
        resumed(folder, epoch_ms=0)
    assert sealing(latency_target="off") == (0, 500), "it was given, so it stays"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitioner": "hash"}, "--partitioner hash: fixed at hdrf"),
        ({"hdrf_lambda": 9}, r"hdrf-lambda 9\.0: fixed at 2\.0"),
        ({"undirected": True}, "--undirected True"),
        ({"id_type": "string"}, "--id-type string: fixed at int"),
        ({"id_bytes_max": 7}, "^id-bytes-max 7: fixed at 1024"),
        ({"parts": 3}, "--parts 3: fixed at 2"),
        ({"edge_ttl": "30d"}, "--edge-ttl 30d: fixed at off"),
        ({"ts_jump": "1d"}, "--ts-jump 1d: fixed at off"),
        ({"parallelism": 7}, "--parallelism 7: .* has 2 parts"),
        ({"runtime": "local"}, "--runtime local: .* runtime flink"),
        ({"snapshot": Path("S")}, "--snapshot S: .* began without one"),
    ],
)
def test_what_decides_the_results_is_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resumed(folder, **options)


def test_the_delivery_to_a_topic_is_for_life(folder: Path) -> None:
    saved = folder / "out" / "job" / "job.json"
    content = orjson.loads(saved.read_bytes())
    content["options"] |= {"embeddings_to": "kafka://localhost:1/embeddings", "delivery": "exactly-once"}
    write_json(saved, content)
    with pytest.raises(UsageError, match="--delivery upsert: the job has exactly-once for its life"):
        resumed(folder, delivery="upsert")


def test_what_was_given_as_it_was_is_taken(folder: Path) -> None:
    resumed(folder, partitioner="hdrf", hdrf_lambda=2, undirected=False, id_type="int", parts=2, runtime="flink")


def test_other_models_and_events_are_refused(folder: Path) -> None:
    (folder / "events.jsonl").write_bytes(EVENTS.replace(b"19", b"190"))
    with pytest.raises(UsageError, match="--events: not the files"):
        resumed(folder)
    (folder / "events.jsonl").write_bytes(EVENTS)
    (folder / "other.jsonl").write_bytes(EVENTS)
    with pytest.raises(UsageError, match="--events: not the files"):
        resumed(folder, events=[str(folder / "other.jsonl")])
    save_model(make_model(2, [conv("graph_conv", IN_WIDTH, 3)]), folder / "other")
    with pytest.raises(UsageError, match="not the model"):
        resumed(folder, model=folder / "other")


def test_a_folder_without_a_job_and_one_that_is_in_use(folder: Path) -> None:
    with pytest.raises(UsageError, match="holds no job"):
        resume(load_run_config(flags(folder, resume="latest")), folder / "model")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        fields = {**run_file.this_process(), "pids": {"client": other.pid}, "client_began_s": began_s(other.pid)}
        run_file.update_run(folder / "out", state="running", **fields)
        with pytest.raises(UsageError, match=f"process {other.pid} is still working"):
            resumed(folder)
        other.kill()
    resumed(folder)


def test_a_job_that_has_come_to_its_end(folder: Path) -> None:
    config, _ = resumed(folder)
    assert not has_finished(config.resume, folder / "out")
    run_file.update_run(folder / "out", state="finished")
    assert has_finished(config.resume, folder / "out")
    older = load_run_config(flags(folder, resume=str(folder)))
    assert not has_finished(older.resume, folder / "out"), "from an older savepoint there is something to do"


# -- the state to go on from ------------------------------------------------------------------------------------------


def checkpoint(path: Path, when: int, data: bytes = b"I`g-\0\0\0\6t\0\7FORWARD") -> Path:
    path.mkdir(parents=True)
    (path / "_metadata").write_bytes(data)
    os.utime(path / "_metadata", (when, when))
    return path


def test_the_latest_state_may_be_a_savepoint_elsewhere(folder: Path) -> None:
    config, _ = resumed(folder)
    assert state(config, folder) is None, "it died before its first checkpoint"
    checkpoints, jobs = folder / "out" / "checkpoints", ["a" * 32, "b" * 32]
    old, new = (checkpoint(checkpoints / job / "chk-3", when) for job, when in zip(jobs, (100, 200), strict=True))
    kept = checkpoint(checkpoints / "savepoints" / "savepoint-1", 50)
    assert state(config, folder) == str(new)
    assert old.exists() and kept.exists(), "nobody knows yet whether the newest can be read"
    elsewhere = checkpoint(folder / "savepoint-2", 300)
    run_file.update_run(folder / "out", savepoint=str(elsewhere))
    assert state(config, folder) == str(elsewhere)


def test_checkpoints_in_another_store(folder: Path) -> None:
    config, _ = resumed(folder, checkpoint_dir="s3://bucket/job")
    assert checkpoint_folder(config.checkpoint_dir, folder) == folder / "checkpoints"
    with pytest.raises(UsageError, match=f"--resume s3://bucket/job/{id_of(folder)}/JOB/chk-N"):
        state(config, folder)
    run_file.update_run(folder / "out", state="stopped", savepoint="s3://bucket/job/savepoints/savepoint-1")
    assert state(config, folder) == "s3://bucket/job/savepoints/savepoint-1"
    given = config.model_copy(update={"resume": "s3://bucket/job/x/chk-1"})
    assert state(given, folder) == "s3://bucket/job/x/chk-1"
    missing = config.model_copy(update={"resume": str(folder / "model")})
    with pytest.raises(UsageError, match="no complete checkpoint or savepoint below"):
        state(missing, folder)


def utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def test_paths_in_metadata_follow_a_move(tmp_path: Path) -> None:
    job = "c" * 32
    was = f"file:/once/upon/{job}"
    data = b"\0\1" + utf(f"{was}/chk-2/file") + b"\xff\2" + utf("freshet-sink") + utf(f"{was}/shared/other")
    found = checkpoint(tmp_path / "ü" / job / "chk-2", 100, data)
    record(found)
    assert follow_move(found)
    assert damage_of(found) is None, "its checksums know of that"
    now = f"file:{tmp_path}/ü/{job}"
    expected = b"\0\1" + utf(f"{now}/chk-2/file") + b"\xff\2" + utf("freshet-sink") + utf(f"{now}/shared/other")
    assert (found / "_metadata").read_bytes() == expected
    assert int((found / "_metadata").stat().st_mtime) == 100, "the newest is found by its time"
    assert not follow_move(found)


def test_what_only_looks_like_a_path_stays() -> None:
    data = b"\0\3file:/a/ " + utf("file:/a/b") + b"file:/a/"
    assert replace_paths(data, b"file:/a/", b"file:/longer/") == b"\0\3file:/a/ " + utf("file:/longer/b") + b"file:/a/"


def test_pruning_leaves_what_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoint(tmp_path / ("d" * 32) / "chk-1", 1)
    checkpoint(tmp_path / "savepoints" / "savepoint-1", 1)
    (tmp_path / "cuts").mkdir()
    prune(tmp_path, keep=None)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["cuts", "savepoints"]
    prune(tmp_path / "nowhere", keep=None)


def test_every_option_for_life_is_known_of_a_job(folder: Path) -> None:
    config = load_run_config(flags(folder) | {"out": folder / "another"})
    had = options_for_life(prepare(config, folder / "another").settings)
    assert {"parts", "strategy", "undirected", "id_kind", "events_map"} < had.keys()
    assert all(had[name] == getattr(config, name) for name in had.keys() - {"parts", "id_kind", "ts_jump_ms"})


@pytest.mark.parametrize(
    ("name", "options", "read"),
    [
        ("keep_cuts", (True, False), lambda settings: settings.cuts.keep_cuts),
        ("dead_letters_max_bytes", ("5MiB", "6MiB"), lambda settings: settings.letters.dead_letters_max_bytes),
    ],
)
def test_an_option_for_life_may_be_in_any_part_of_the_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: tuple[Any, Any], read: Any
) -> None:
    """As if this option were one: it is told when the job begins, and not again."""
    monkeypatch.setattr(run_config, "that_hold", lambda how_long: [(name, None)])
    option, out = option_name(name), folder / "another"
    flags_of = flags(folder, **{option: options[0]}) | {"out": out}
    began = read(prepare(load_run_config(flags_of), out).settings)
    assert began == getattr(load_run_config(flags_of), name)
    run_file.update_run(out, pids={}, state="stopped")
    _, job = resume(load_run_config(flags_of | {"resume": "latest", option: options[1]}), out)
    assert read(job.settings) == began


def test_the_outlet_keeps_what_it_has_for_its_life(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(run_config, "that_hold", lambda how_long: [("coalesce_epochs", None)])
    config = load_run_config(flags(folder, embeddings_to="kafka://h:1/t", coalesce_epochs=7, embedding_format="list"))
    began = outlet_settings(config, "a" * 64)
    assert began == OutletConfig("a" * 12, "list", 7, 500)
    later = load_run_config(flags(folder, embeddings_to="kafka://h:1/t", coalesce="2s"))
    assert outlet_settings(later, "a" * 64, began) == OutletConfig("a" * 12, "base64", 7, 2000)


# -- a folder that many jobs share ------------------------------------------------------------------------------------


def shared_by_two(folder: Path, tmp_path: Path) -> list[tuple[Any, Any, Path]]:
    """Two jobs, prepared with one folder for their checkpoints: options, job, folder of its output."""
    found = []
    for name in ("one", "two"):
        config = load_run_config(flags(folder, checkpoint_dir=str(tmp_path / "shared")) | {"out": tmp_path / name})
        found.append((config, prepare(config, tmp_path / name), tmp_path / name))
        run_file.update_run(tmp_path / name, pids={}, state="stopped")
    return found


def test_jobs_that_share_a_folder_have_cut_logs_and_checkpoints_of_their_own(folder: Path, tmp_path: Path) -> None:
    (config, one, out), (_, two, _) = shared_by_two(folder, tmp_path)
    shared, ids = tmp_path / "shared", [one.settings.job_id, two.settings.job_id]
    assert [job.settings.cuts.folder for job in (one, two)] == [str(shared / job / "cuts") for job in ids]
    assert one.settings.cuts.checkpoints == str(shared / ids[0])
    spec, place = spec_of(one, config, JobStates(out, ids[0], config.checkpoint_dir, "")), f"file://{shared}/{ids[0]}"
    assert (spec.checkpoint_uri, spec.savepoint_uri) == (place, f"{place}/savepoints")
    kept = shared / ids[1] / ("b" * 32) / "chk-1"
    checkpoint(kept, 200)
    again = load_run_config(flags(folder, resume="latest") | {"out": out})
    going_on, job = resume(again, out)
    assert job.settings.cuts.folder == one.settings.cuts.folder
    assert state(going_on, folder, out) is None, "the newest state is the other job's"
    mine = checkpoint(shared / ids[0] / ("a" * 32) / "chk-3", 100)
    assert state(going_on, folder, out) == str(mine)
    assert state(going_on.model_copy(update={"resume": str(shared)}), folder, out) == str(mine)
    prune(spec.checkpoints, keep=None)
    assert kept.exists(), "a normal end removes its own"
    assert not mine.exists()


def test_the_state_of_another_job_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    (config, one, out), (_, two, _) = shared_by_two(folder, tmp_path)
    ids = [one.settings.job_id, two.settings.job_id]
    found = checkpoint(tmp_path / "shared" / ids[1] / "savepoints" / "savepoint-1", 200)
    given = config.model_copy(update={"resume": str(found)})
    with pytest.raises(UsageError, match=f"savepoint-1 is a state of job {ids[1]}, the job in .* is {ids[0]}"):
        state(given, folder, out)
    theirs = checkpoint(folder / "out" / "checkpoints" / ("c" * 32) / "chk-2", 200)
    given = config.model_copy(update={"resume": str(theirs)})
    with pytest.raises(UsageError, match=f"chk-2 is a state of job {id_of(folder)}, the job in .* is {ids[0]}"):
        state(given, folder, out)
    found = str(checkpoint(tmp_path / "savepoint-7", 300))
    given = config.model_copy(update={"resume": found})
    assert state(given, folder, out) == found, "its content tells, once it is read"


def test_a_job_that_starts_anew_reads_nothing_of_the_one_before(folder: Path, tmp_path: Path) -> None:
    (config, one, out), _ = shared_by_two(folder, tmp_path)
    log = one.settings.open_cut_log()
    log.append(Cut(1, 7, False))
    log.close()
    shutil.rmtree(out)
    anew = prepare(config, out).settings
    assert anew.cuts.folder != one.settings.cuts.folder
    assert anew.open_cut_log().last == 0


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_stopping_what_does_not_run(folder: Path) -> None:
    out = folder / "out"
    with pytest.raises(UsageError, match=r"no running job .run.json says stopped"):
        stop(out)
    run_file.update_run(out, state="running", **run_file.this_process())
    run_file.update_run(out, pids={"client": 2**22 + 1})
    with pytest.raises(UsageError, match=r"process 4194305 is gone .* --resume latest"):
        stop(out)
    run_file.update_run(out, runtime="local")
    with pytest.raises(UsageError, match="process 4194305 is gone"):
        stop(out)
    with pytest.raises(UsageError, match="leave --savepoint out"):
        stop(out, savepoint="S")
    run_file.update_run(out, host="another")
    with pytest.raises(UsageError, match="runs on the machine another"):
        stop(out)


def test_readers_are_kept_until_others_are_given_or_other_processes(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun / "model", tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(EVENTS)
    prepare(load_run_config(flags(tmp_path, readers=3, epoch_ms=0)), tmp_path / "out")
    for options, readers in (({}, 3), ({"readers": 2}, 2), ({}, 2), ({"parallelism": 1}, None), ({}, None)):
        run_file.update_run(tmp_path / "out", pids={}, state="stopped")
        assert resumed(tmp_path, **options)[0].readers == readers


def test_a_job_of_one_part_goes_on_with_any_processes_that_share_its_layers(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun / "model", tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(EVENTS)
    job = prepare(load_run_config(flags(tmp_path, parallelism=2, pipeline=2, epoch_ms=0)), tmp_path / "out")
    assert job.settings.parts == 1, "its two processes share the layers"
    run_file.update_run(tmp_path / "out", pids={}, state="stopped")
    for options in ({}, {"parallelism": 1}, {"parallelism": 3}):
        assert resumed(tmp_path, **options)[1].settings.parts == 1
        run_file.update_run(tmp_path / "out", pids={}, state="stopped")
    with pytest.raises(UsageError, match=r"--parallelism 4: .* has 1 part,"):
        resumed(tmp_path, parallelism=4)

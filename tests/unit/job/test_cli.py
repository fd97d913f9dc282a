"""The command line from outside: exit codes, what is said where, and what reaches the modules behind it."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from freshet.files.json_file import DamagedFileError
from freshet.gnn.model import ModelError
from freshet.job import cli
from freshet.job.commands.run import run
from freshet.job.errors import JobFailed
from freshet.job.options.flags import keys_of_the_file
from freshet.job.options.run_config import RunConfig, option_names
from freshet.operators.checks.exporting import answers_at_export
from freshet.operators.epochs.cut import LostCutError
from freshet.operators.snapshot.reader import SnapshotError


class Ended:
    """A finished `freshet` command: exit code, stdout, stderr."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def freshet(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ended(int(end.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A model, a snapshot, events and the output of a run, as far as the command line looks at them."""
    for name in (
        "M/model.json",
        "M/model.safetensors",
        "S/vertices.parquet",
        "S/edges.parquet",
        "e.jsonl",
        "O/run.json",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "O" / "epochs").mkdir()
    return {
        "M": tmp_path / "M",
        "S": tmp_path / "S",
        "E": tmp_path / "e.jsonl",
        "O": tmp_path / "O",
        "new": tmp_path / "N",
    }


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a function in the place of a module's, and returns the list of what it is called with."""

    def place(package: str, name: str, function: str, result: Any = 0) -> list[Any]:
        calls: list[Any] = []

        def called(*arguments: Any, **named: Any) -> Any:
            calls.append((arguments, named))
            if isinstance(result, BaseException):
                raise result
            return result

        module = ModuleType(f"{package}.{name}")
        setattr(module, function, called)
        monkeypatch.setitem(sys.modules, f"{package}.{name}", module)
        monkeypatch.setattr(import_module(package), name, module, raising=False)
        return calls

    return place


def run_arguments(files: dict[str, Path], *more: object) -> list[object]:
    return ["run", "--model", files["M"], "--events", files["E"], "--out", files["new"], *more]


def test_every_option_has_a_flag_and_every_flag_an_option() -> None:
    flags = set(inspect.signature(run).parameters) - {"config"}
    in_the_file_alone = {key.replace("-", "_") for key in keys_of_the_file()}
    assert {name.rstrip("_") for name in flags} == set(option_names()) - in_the_file_alone
    assert len(flags) == 52, "a flag more: is it one that people set often?"


@pytest.mark.parametrize("flag", [f"--{key}" for key in keys_of_the_file()] + ["--no-keep-cuts", "--restarts=4"])
def test_an_option_of_the_file_alone_given_as_a_flag_is_explained(freshet: Any, flag: str) -> None:
    ended = freshet("run", flag, "5")
    name = flag.partition("=")[0]
    key = name.removeprefix("--").removeprefix("no-")
    said = f"freshet: {name}: a key of the --config file, not a flag; write `{key}: ...` in the file\n"
    assert (ended.code, ended.err) == (2, said)


@pytest.mark.parametrize("command", ["run", "check", "stop", "warm-up", "model import", "model describe"])
def test_help_teaches_with_an_example(command: str) -> None:
    result = CliRunner().invoke(
        cli.menu(command.split()), [*command.split(), "--help"], env={"COLUMNS": "200", "TERM": "dumb"}
    )
    assert result.exit_code == 0
    assert f"freshet {command} " in result.output
    assert "Example" in result.output


def test_help_shows_the_defaults(freshet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = freshet("run", "--help").out
    for text in ("50ms", "(default: hybrid)", "(default: 10s)", "(default: flink)"):
        assert text in shown
    assert "embeddings-from-start" in shown, "the keys that have no flag"


def test_version(freshet: Any) -> None:
    assert freshet("--version").out.startswith("freshet 0.")


def test_flags_reach_the_runner(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    calls = stand_in("freshet.job.run", "runner", "run")
    ended = freshet(*run_arguments(
        files, "--events", files["E"], "--snapshot", files["S"], "--runtime", "local", "--parts", 4, "--epoch-ms", 0,
        "--undirected", "--memory", "1GiB", "--checkpoint-interval", "500ms", "--partitioner", "hdrf",
    ))  # fmt: skip
    assert ended.code == 0, ended.err
    (((config,), _),) = calls
    assert isinstance(config, RunConfig)
    assert config.events == [str(files["E"])] * 2
    assert (config.runtime, config.parts, config.epoch_ms, config.strategy) == ("local", 4, 0, "hdrf")
    assert (config.undirected, config.memory_bytes, config.checkpoint_interval_s) == (True, 1 << 30, 0.5)
    assert config.snapshot == files["S"]


def test_a_flag_switches_off_what_the_file_switches_on(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    calls = stand_in("freshet.job.run", "runner", "run")
    config_file = files["new"].with_name("job.yaml")
    config_file.write_text("undirected: true\nstay: true\n")
    assert freshet(*run_arguments(files, "--config", config_file, "--directed")).code == 0
    config = calls[0][0][0]
    assert (config.undirected, config.stay) == (False, True)


@pytest.mark.parametrize("code", [0, 3, 130, 143])
def test_the_runners_exit_code_is_the_commands(freshet: Any, files: dict[str, Path], stand_in: Any, code: int) -> None:
    stand_in("freshet.job.run", "runner", "run", code)
    assert freshet(*run_arguments(files)).code == code


def test_a_failed_job_ends_with_3_and_its_cause_last(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    stand_in("freshet.job.run", "runner", "run", JobFailed("checkpoint folder is full\n(no space left)"))
    ended = freshet(*run_arguments(files))
    assert ended.code == 3
    assert ended.err.splitlines()[-1] == "freshet: checkpoint folder is full (no space left)"
    assert "Traceback" not in ended.err


def test_an_unexpected_error_ends_with_3_its_traceback_and_its_cause_last(
    freshet: Any, files: dict[str, Path], stand_in: Any
) -> None:
    stand_in("freshet.job.run", "runner", "run", IndexError("slot 7 of 5"))
    ended = freshet(*run_arguments(files))
    assert ended.code == 3
    assert "Traceback" in ended.err
    assert ended.err.splitlines()[-1] == "freshet: IndexError: slot 7 of 5"


def test_bad_input_ends_with_2_whatever_part_finds_it(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    for error in (ModelError, SnapshotError, LostCutError, DamagedFileError):
        stand_in("freshet.job.run", "runner", "run", error("what was found\nwhat to do"))
        ended = freshet(*run_arguments(files))
        assert ended.code == 2
        assert ended.err.splitlines() == ["freshet: what was found", "freshet: what to do"]


def test_ctrl_c_ends_with_130(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    stand_in("freshet.job.run", "runner", "run", KeyboardInterrupt())
    assert freshet(*run_arguments(files)).code == 130


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "--model: missing"),
        (["run", "--model", "nowhere", "--events", "e", "--out", "o"], "--model nowhere: no such folder"),
        (["run", "--delivery", "twice"], "Invalid value for '--delivery'"),
        (["run", "--embeddings-to", "topic"], "--embeddings-to: got 'topic' (another scheme)"),
        (["run", "--frobnicate"], "No such option"),
        (["run", "--parts", "many"], "--parts"),
        (["serve", "--tables", "nowhere"], "nowhere: expected the folder tables of a job's --out"),
        (["serve", "--tables", "O/tables", "--history", "5"], "expected a size such as 2GiB"),
        (["query", "--at", "nowhere", "--timeout", "0.1", "7"], "give O/tables"),
        (["compact", "nowhere"], "no job in it"),
        (["compact", "--keep-changes", "5", "nowhere"], "--keep-changes: got '5'"),
        (["embed", "--model", "M", "--snapshot", "S", "--out", "O", "--memory", "2"], "--memory: got '2'"),
        (["embed", "--model", "M", "--snapshot", "S", "--out", "O", "--passes", "0"], "--passes: got '0'"),
        (
            ["embed", "--model", "M", "--snapshot", "S", "--out", "O", "--for", "x"],
            "--for: got 'x', expected streaming",
        ),
        (["embed", "--model", "M", "--snapshot", "S", "--out", "O", "--passes", "2"], "go with --for serving"),
        (["embed", "--model", "M", "--snapshot", "S", "--out", "O", "--partitioner", "x"], "--partitioner: got 'x'"),
        (["stop", "nowhere"], "nowhere: no run.json"),
        (["model", "describe", "nowhere"], "--model nowhere: no such folder"),
        (["model", "import", "pkg.mod", "--weights", "w.pt", "--out", "x"], "expected PACKAGE.MODULE:FACTORY"),
        (["model", "import", "pkg.mod:f", "--weights", "w.bin", "--out", "x"], "--weights w.bin"),
    ],
)
def test_wrong_use_ends_with_2_and_says_why(freshet: Any, arguments: list[str], said: str) -> None:
    ended = freshet(*arguments)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
    assert "Traceback" not in ended.err
    assert ended.out == ""


def test_a_used_output_folder_is_refused(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    calls = stand_in("freshet.job.run", "runner", "run")
    ended = freshet("run", "--model", files["M"], "--events", files["E"], "--out", files["O"])
    assert ended.code == 2
    assert "not empty" in ended.err
    assert not calls


def test_check_passes_its_options_on(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    calls = stand_in("freshet.job.results", "check", "check", 1)
    arguments = ["--model", files["M"], "--events", files["E"], "--out", files["O"], "--oracle", "own"]
    assert freshet("check", *arguments).code == 1
    (((), named),) = calls
    assert named == {
        "model": files["M"], "events": [str(files["E"])], "out": files["O"], "snapshot": None, "oracle": "own",
        "tolerance": 1e-4, "undirected": None, "id_type": None, "properties": {}, "every": None,
        "kind": None,
    }  # fmt: skip


def test_check_takes_what_a_run_was_given_from_its_file(
    freshet: Any, files: dict[str, Path], stand_in: Any, tmp_path: Path
) -> None:
    calls = stand_in("freshet.job.results", "check", "check", 0)
    config = tmp_path / "job.yaml"
    written = [f"model: {files['M']}", f"events: {files['E']}", f"snapshot: {files['S']}", "out: elsewhere", "parts: 2"]
    config.write_text("\n".join([*written, "kafka: {client.id: me}"]))
    assert freshet("check", "--config", config, "--out", files["O"]).code == 0
    (((), named),) = calls
    expected = {"model": files["M"], "events": [str(files["E"])], "snapshot": files["S"], "out": files["O"]}
    assert {name: named[name] for name in expected} == expected
    assert dict(named["properties"]) == {"client.id": "me"}
    config.write_text(f"model: {files['M']}")
    ended = freshet("check", "--config", config, "--out", files["O"])
    assert (ended.code, "--events: missing; give the flag, or `events:` in the --config file" in ended.err) == (2, True)


def test_stop_passes_its_options_on(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    calls = stand_in("freshet.job.run", "stop", "stop")
    assert freshet("stop", "--savepoint", "B", files["O"]).code == 0
    assert calls == [((), {"out": files["O"], "savepoint": "B"})]


def test_model_import_and_describe(freshet: Any, files: dict[str, Path], stand_in: Any) -> None:
    weights = files["M"] / "model.safetensors"
    calls = stand_in("freshet.gnn.pyg", "importing", "import_model", None)
    assert freshet("model", "import", "pkg.mod:make", "--weights", weights, "--out", files["new"]).code == 0
    named = {"edge_types": None, "head": None, "stats_from": None, "features": None, "checks": answers_at_export}
    named["overwrite"] = False
    assert calls == [(("pkg.mod:make", weights, files["new"]), named)]
    assert freshet("model", "import", "p:m", "--weights", weights, "--out", files["new"], "--features", 7).code == 0
    assert calls[1][1]["features"] == 7
    ended = freshet("model", "import", "p:m", "--weights", weights, "--out", files["new"], "--features", "wide")
    assert ended.code == 2 and "--features wide: expected a number above 0, or a snapshot folder" in ended.err
    stand_in("freshet.gnn", "describe", "describe", "layer 1: sage_conv")
    assert "layer 1: sage_conv" in freshet("model", "describe", files["M"]).out

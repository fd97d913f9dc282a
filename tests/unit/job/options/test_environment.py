"""Options of `freshet run` in the environment: what they win over, and how a wrong one is refused."""

from pathlib import Path

import pytest

from freshet.job.errors import UsageError
from freshet.job.options.config_file import load_run_config, read_environment, variable_of
from freshet.job.options.run_config import RunConfig, option_fields

NEEDED = {"model": Path("M"), "events": ["e.jsonl"], "out": Path("O")}


def load(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], config: Path | None = None, **flags: object
) -> RunConfig:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_run_config({**NEEDED, **flags}, config)


def test_a_flag_wins_over_the_environment_it_over_the_file_and_the_file_over_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("parts: 2\nparallelism: 2\nrestarts: 7\n")
    variables = {"FRESHET_RUN_PARTS": "3", "FRESHET_RUN_PARALLELISM": "3", "FRESHET_RUN_KEEP_CUTS": "true"}
    found = load(monkeypatch, variables, file, parts=4)
    assert (found.parts, found.parallelism, found.restarts, found.checkpoint_interval_s) == (4, 3, 7, 10.0)
    assert found.keep_cuts


def test_the_environment_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("restarts: 7\n")
    assert load(monkeypatch, {"FRESHET_RUN_CONFIG": str(file)}).restarts == 7


def test_every_option_has_a_variable_that_reaches_it() -> None:
    variables = {variable_of(name): "1" for name in option_fields()}
    assert read_environment(variables) == dict.fromkeys(option_fields(), "1")
    assert "FRESHET_RUN_ID_TYPE" in variables


def test_units_choices_lists_and_mappings_are_written_as_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_RUN_EVENTS", "[a.jsonl, b.jsonl]")
    monkeypatch.setenv("FRESHET_RUN_OUT", "[O]")  # a folder of this name
    monkeypatch.setenv("FRESHET_RUN_MODEL", "M")
    monkeypatch.setenv("FRESHET_RUN_EPOCH_MS", "5")
    monkeypatch.setenv("FRESHET_RUN_KAFKA", "{security.protocol: SASL_SSL}")
    monkeypatch.setenv("FRESHET_RUN_UNDIRECTED", "yes")
    monkeypatch.setenv("FRESHET_RUN_MEMORY", "1GiB")
    monkeypatch.setenv("FRESHET_RUN_TABLES", "")  # as Compose writes what is not set
    monkeypatch.setenv("FRESHET_TOKEN", "not an option")
    found = load_run_config({})
    assert (found.events, found.out, found.undirected) == (["a.jsonl", "b.jsonl"], Path("[O]"), True)
    assert (found.memory_bytes, found.tables_folder) == (1 << 30, None)
    assert found.kafka == {"security.protocol": "SASL_SSL"}


def test_one_event_file_needs_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_RUN_EVENTS", "a,b.jsonl")
    assert load_run_config({"model": "M", "out": "O"}).events == ["a,b.jsonl"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "FRESHET_RUN_PART",
            "3",
            "FRESHET_RUN_PART: no option of `freshet run` has this name; did you mean FRESHET_RUN_PARTS?",
        ),
        (
            "FRESHET_RUN_XYZZY",
            "",
            "FRESHET_RUN_XYZZY: no option of `freshet run` has this name; see `freshet run --help`",
        ),
        ("FRESHET_RUN_PARTS", "a", "FRESHET_RUN_PARTS: --parts: got 'a', expected"),
        ("FRESHET_RUN_PARTS", "0", "FRESHET_RUN_PARTS: --parts: got '0', expected"),
        ("FRESHET_RUN_KAFKA", "{sasl.password: [secret", "FRESHET_RUN_KAFKA: can't be read as YAML"),
    ],
)
def test_wrong_ones_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(monkeypatch, {name: value})
    assert str(caught.value).startswith(told)
    assert "secret" not in str(caught.value)


# Of a Service freshet-run with two ports, of one called freshet-run-flight, and of one with an IPv6 address.
LINKS = {
    "FRESHET_RUN_SERVICE_HOST": "10.96.0.7",
    "FRESHET_RUN_SERVICE_PORT": "8080",
    "FRESHET_RUN_SERVICE_PORT_HTTP_2": "8080",
    "FRESHET_RUN_PORT": "tcp://10.96.0.7:8080",
    "FRESHET_RUN_PORT_8080_TCP": "tcp://10.96.0.7:8080",
    "FRESHET_RUN_PORT_8080_TCP_PROTO": "tcp",
    "FRESHET_RUN_PORT_8080_TCP_PORT": "8080",
    "FRESHET_RUN_PORT_8080_TCP_ADDR": "10.96.0.7",
    "FRESHET_RUN_PORT_53_UDP": "udp://10.96.0.7:53",
    "FRESHET_RUN_PORT_53_UDP_PROTO": "udp",
    "FRESHET_RUN_FLIGHT_PORT": "tcp://10.96.0.8:47470",
    "FRESHET_RUN_OUT_REST_SERVICE_HOST": "fd00::1:7",
    "FRESHET_RUN_OUT_REST_PORT": "tcp://[fd00::1:7]:8081",
}


def test_links_of_services_are_passed_over(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = load(monkeypatch, LINKS | {"FRESHET_RUN_PARTS": "3"})
    assert (found.parts, found.flight_port) == (3, None)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{', '.join(sorted(LINKS))}: set by Kubernetes for a Service")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FRESHET_RUN_PORT", "47470"),  # meant for FRESHET_RUN_FLIGHT_PORT
        ("FRESHET_RUN_FLIGHT_PROT", "tcp://10.96.0.7:8080"),
        ("FRESHET_RUN_SERVICE_HOST", "kafka:9092"),
        ("FRESHET_RUN_SERVICE_PORT", "http"),
        ("FRESHET_RUN_REPORT", "tcp://10.96.0.7:8080"),
        ("FRESHET_RUN_PARTS", "tcp://10.96.0.7:8080"),
    ],
)
def test_what_is_no_link_by_name_and_value_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}: "):
        load(monkeypatch, {name: value})


def test_an_option_that_looks_like_a_link_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, {"FRESHET_RUN_FLIGHT_PORT": "47470"}).flight_port == 47470

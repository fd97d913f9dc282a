from pathlib import Path
from typing import Any

import pytest

from freshet.job.errors import UsageError
from freshet.job.folder.layout import checkpoint_folder, dead_letters_to
from freshet.job.options.config_file import load_run_config, read_config_file
from freshet.job.options.run_config import RunConfig, option_names

NEEDED = {"model": Path("M"), "events": ["e.jsonl"], "out": Path("O")}


def load(**flags: Any) -> RunConfig:
    return load_run_config({**NEEDED, **flags})


def from_yaml(folder: Path, text: str, **flags: Any) -> RunConfig:
    (folder / "job.yaml").write_text(text)
    return load_run_config(flags, folder / "job.yaml")


def refusal(**flags: Any) -> str:
    with pytest.raises(UsageError) as caught:
        load(**flags)
    return str(caught.value)


def test_defaults_are_those_of_the_interface() -> None:
    config = load()
    assert (config.runtime, config.parallelism, config.part_count) == ("flink", 1, 1)
    assert (config.latency_target_ms, config.epoch_events, config.strategy) == (50.0, 10_000, "hybrid")
    assert config.checkpoint_interval_s == 10.0
    assert checkpoint_folder(config.checkpoint_dir, config.out) == Path("O/checkpoints")
    assert dead_letters_to(config.dead_letters, config.out) == str(Path("O/dead_letters.jsonl").absolute())
    assert not config.undirected
    assert not config.stay


def test_with_a_latency_target_the_number_of_events_is_a_ceiling() -> None:
    config = load(latency_target="50ms")
    assert (config.latency_target_ms, config.epoch_events, config.epoch_ms) == (50.0, 10_000, 20)
    assert load(latency_target="50ms", epoch_events=300).epoch_events == 300
    assert load(latency_target="off", epoch_ms=0).latency_target_ms == 0


def test_event_time_ends_epochs_beside_the_other_rules() -> None:
    assert (load().epoch_event_time_ms, load().idle_ms) == (0, 30_000)
    config = load(epoch_event_time="1d", idle="5s")
    assert (config.epoch_event_time_ms, config.idle_ms, config.latency_target_ms) == (86_400_000, 5_000, 50.0)
    config = load(epoch_event_time="off", resume="latest", idle="off")
    assert (config.epoch_event_time_ms, config.idle_ms) == (0, 0)


@pytest.mark.parametrize("given", [{"epoch_events": 1000}, {"epoch_ms": 20}, {"latency_target": "off"}])
def test_epochs_do_not_adapt_where_their_size_or_age_is_given(given: dict[str, Any]) -> None:
    config = load(**given)
    assert (config.latency_target_ms, config.epoch_events, config.epoch_ms) == (0.0, 1000, 20)


def test_yaml_has_a_word_for_off(tmp_path: Path) -> None:
    needed = "model: M\nevents: a.jsonl\nout: O\n"
    assert from_yaml(tmp_path, f"{needed}latency-target: off\n").latency_target_ms == 0
    assert from_yaml(tmp_path, f"{needed}latency-target: 20ms\n").latency_target_ms == 20


def test_times_that_edges_live(tmp_path: Path) -> None:
    assert (load().edge_ttl_ms, load().ts_jump_ms) == (0, None)
    config = from_yaml(tmp_path, "model: M\nevents: a.jsonl\nout: O\nedge-ttl: 30d\nts-jump: off\n")
    assert (config.edge_ttl_ms, config.ts_jump_ms) == (30 * 86_400_000, 0)
    assert load(edge_ttl="1.5h", ts_jump="500ms").ts_jump_ms == 500
    for bad in ("30", "0d", "-1d", "soon", 30, "0.1ms", "200000000000d"):
        assert refusal(edge_ttl=bad).startswith("--edge-ttl: got "), bad


def test_each_layer_may_have_its_own_parallelism(tmp_path: Path) -> None:
    assert load(layer_parallelism="1,2,4").processes == (1, None, (1, 2, 4))
    needed = "model: M\nevents: a.jsonl\nout: O\n"
    for text in ("[1, 2, 4]", "1,2,4", "'1, 2, 4'"):
        assert from_yaml(tmp_path, f"{needed}layer-parallelism: {text}\n").layer_parallelism == (1, 2, 4)
    assert from_yaml(tmp_path, f"{needed}layer-parallelism: 3\n").layer_parallelism == (3,)
    config = load(layer_parallelism="1,2,4")
    assert (config.part_count, config.processes_at_most) == (4, 4)
    assert load(layer_parallelism="1,2", parallelism=5).processes_at_most == 5


@pytest.mark.parametrize("wrong", ["", "1,,2", "1,x", "0,1", "-1", "1.5", "1;2", [1, 0], [True], [], [1.0], {"a": 1}])
def test_other_numbers_of_layers_are_refused_by_name(wrong: Any) -> None:
    assert refusal(layer_parallelism=wrong).startswith(f"--layer-parallelism: got {wrong!r}, expected whole numbers")


def test_layers_must_fit_the_other_options() -> None:
    assert refusal(layer_parallelism="1,4,2", parts=2) == (
        "--layer-parallelism 1,4,2: layer 2 would have 4 processes, and --parts has 2 parts; give at most 2"
    )
    assert "--parallelism has 2 processes; give at most 2" in refusal(layer_parallelism="1,4", parallelism=2)
    assert "--runtime flink has 128 parts at most" in refusal(layer_parallelism="129")
    assert load(layer_parallelism="1,2", parallelism=7, pipeline=2, parts=2).part_count == 2, "7 is the limit only"
    assert load(layer_parallelism="1,4", parts=2, runtime="local").part_count == 2, "taken, and of no effect"


def test_parts_default_to_the_parallelism() -> None:
    assert load(parallelism=3).part_count == 3
    assert load(parallelism=2, parts=4).part_count == 4
    assert load(parallelism=6, pipeline=3).part_count == 2, "three share the layers"
    assert load(parallelism=2, parts=1, pipeline=2).part_count == 1


def test_quantities_are_read_with_their_units() -> None:
    config = load(checkpoint_interval="500ms", memory="2GiB")
    assert config.checkpoint_interval_s == 0.5
    assert (config.publish_ms, config.dead_letters_max_bytes) == (10_000, 1 << 30)
    assert config.memory_bytes == 2 << 30
    assert [load(max_rejected=one).max_rejected for one in ("5%", "0.5 %", "0%", "off", False)] == [
        *(0.05, 0.005, 0.0, None, None)
    ]
    config = load(publish_within="1.5s", dead_letters_max="2MiB")
    assert (config.publish_ms, config.dead_letters_max_bytes) == (1500, 2 << 20)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"parts": 0}, "--parts: got 0, expected greater than or equal to 1"),
        ({"parallelism": "two"}, "--parallelism: got 'two', expected a valid integer"),
        ({"parallelism": True}, "--parallelism: got True, expected a number"),
        ({"readers": 0}, "--readers: got 0, expected greater than or equal to 1"),
        ({"readers": 129}, "--readers: got 129, expected less than or equal to 128"),
        ({"readers": "all"}, "--readers: got 'all', expected a valid integer"),
        ({"epoch_events": 0}, "--epoch-events: got 0"),
        ({"epoch_ms": -1}, "--epoch-ms: got -1"),
        ({"latency_target": "50"}, "--latency-target: got '50', expected a duration such as 10s"),
        ({"latency_target": "0ms"}, "--latency-target: got '0ms', expected a duration longer than zero"),
        ({"latency_target": "50ms", "epoch_ms": 0}, "--latency-target 50ms: epochs can't adapt where --epoch-ms 0"),
        ({"epoch_event_time": "0"}, "--epoch-event-time: got '0', expected a duration such as 10s"),
        ({"epoch_event_time": 0}, "--epoch-event-time: got '0', expected a duration such as 10s"),
        ({"epoch_event_time": "0d"}, "--epoch-event-time: got '0d', expected a duration longer than zero"),
        ({"epoch_event_time": "1d", "idle": "30"}, "--idle: got '30', expected a duration such as 10s"),
        ({"idle": "30s"}, "--idle: goes with --epoch-event-time only; leave it out"),
        ({"partitioner": "metis"}, "--partitioner: got 'metis', expected 'hybrid', 'hdrf', 'locality' or 'hash'"),
        ({"runtime": "spark"}, "--runtime: got 'spark', expected 'flink' or 'local'"),
        ({"id_type": "uuid"}, "--id-type: got 'uuid'"),
        ({"id_bytes_max": 0}, "id-bytes-max: got 0, expected greater than or equal to 1"),
        ({"id_bytes_max": True}, "id-bytes-max: got True, expected a number"),
        ({"hdrf_epsilon": 0.0}, "hdrf-epsilon: got 0.0"),
        ({"hdrf_lambda": float("nan")}, "hdrf-lambda: got nan"),
        ({"checkpoint_interval": "10"}, "--checkpoint-interval: got '10', expected a duration such as 10s"),
        ({"checkpoint_interval": 10}, "--checkpoint-interval: got '10', expected a duration such as 10s"),
        ({"memory": "much"}, "--memory: got 'much', expected a size such as 2GiB"),
        ({"cluster": "somewhere"}, "--cluster: got 'somewhere', expected HOST:PORT"),
        ({"cluster": "host:99999"}, "--cluster: got 'host:99999', expected HOST:PORT"),
        ({"cluster": "host:80", "runtime": "local"}, "--cluster: goes with --runtime flink only"),
        ({"events": ["kafka://h/t"]}, "--events: got 'kafka://h/t' ('h' is no HOST:PORT), expected kafka://HOST:PORT"),
        ({"events": ["kafka://h:1/t"], "runtime": "local"}, "--runtime local: reads files only"),
        ({"events": ["kafka://h:1/t"], "stay": True}, "--stay: a run on Kafka goes on by itself"),
        ({"from": "latest"}, "--from: goes with a Kafka topic in --events only"),
        ({"until": "latest"}, "--until: goes with a Kafka topic in --events only"),
        ({"events": ["kafka://h:1/t"], "from": "noon"}, "--from: got 'noon', expected earliest, latest, committed"),
        ({"events": ["kafka://h:1/t"], "from": "committed"}, "--from committed: give the group"),
        ({"events": ["kafka://h:1/t"], "until": "noon"}, "--until: got 'noon', expected 'latest'"),
        ({"events_map": 5}, "events-map: got int, expected a mapping"),
        ({"events_map": "x"}, "--events-map: got x, expected YAML such as '{src: user}', or a file that has it"),
        ({"events_map": []}, "events-map: got an empty list, expected a map"),
        (
            {"events_map": [{"op": "`add_edge`"}, {"when": "x", "colour": "x"}]},
            "events-map: 2: expected fields among op",
        ),
        ({"events_map": {"colour": "x"}}, "events-map: expected fields among op, id"),
        ({"events_map": {"op": 5}}, "events-map: op: 5 is no JMESPath expression: expected text"),
        ({"events_map": {"src": "a["}}, "events-map: src: 'a[' is no JMESPath expression"),
        ({"format": "avro", "registry": "http://r"}, "--format: goes with a Kafka topic in --events only"),
        ({"events": ["kafka://h:1/t"], "format": "avro"}, "--format avro: needs the schemas; give --registry URL"),
        ({"events": ["kafka://h:1/t"], "registry": "http://r"}, "--registry: goes with --format avro, protobuf or"),
        ({"registry": "r:8081"}, "--registry: got r:8081, expected an address such as https://registry:8081"),
        ({"registry": "http://me:s3cret@r"}, "--registry: got http://…@r, expected an address"),
        ({"format": "xml"}, "--format: got 'xml', expected 'avro', 'protobuf' or 'json-schema'"),
        ({"kafka": {"schema.registry.url": "x"}}, "kafka: schema.registry.url: expected schema.registry.basic.auth"),
        ({"kafka": {"acks": "1"}}, "kafka: acks: can't be set; it is always `all`"),
        ({"dead_letters": "kafka://h:1/t", "runtime": "local"}, "--dead-letters: --runtime local writes files only"),
        ({"dead_letters": "kafka://h:1"}, "--dead-letters: got 'kafka://h:1' (no topic), expected kafka://HOST:PORT"),
        ({"embeddings_to": "O/topic"}, "--embeddings-to: got 'O/topic' (another scheme), expected kafka://HOST:PORT"),
        ({"embeddings_to": "kafka://h:1/t", "runtime": "local"}, "--embeddings-to: --runtime local writes files only"),
        ({"embeddings_to": "kafka://h:1/t", "dead_letters": "kafka://h:1/t"}, "expected different topics, got t, t"),
        ({"embeddings_to": "kafka://h:1/t", "events": ["kafka://h:1/t"]}, "expected different topics, got t, t"),
        ({"delivery": "twice"}, "--delivery: got 'twice', expected 'upsert' or 'exactly-once'"),
        ({"embedding_format": "csv"}, "--embedding-format: got 'csv', expected 'base64', 'list' or 'binary'"),
        ({"coalesce": "5"}, "coalesce: got '5'"),
        ({"publish_within": "10"}, "--publish-within: got '10', expected a duration such as 10s"),
        ({"publish_within": "0s"}, "--publish-within: got '0s', expected a duration longer than zero"),
        ({"publish_within": "5ms"}, "--publish-within: got 5ms, expected at least 100ms"),
        ({"max_rejected": "5"}, "--max-rejected: got '5', expected a share such as 5%, or off"),
        ({"max_rejected": 0.05}, "--max-rejected: got 0.05, expected a share such as 5%, or off"),
        ({"max_rejected": "101%"}, "--max-rejected: got '101%', expected a share such as 5%"),
        ({"dead_letters_max": "1"}, "dead-letters-max: got '1', expected a size such as 2GiB"),
        ({"dead_letters_max": "5kB"}, "dead-letters-max: got 5000 bytes, expected at least 1MiB"),
        ({"stay": True, "runtime": "local"}, "--stay: --runtime local ends when its input does"),
        ({"events": []}, "--events: got []"),
        ({"parts": 129}, "--parts: got 129, expected at most 128 with --runtime flink"),
        ({"parallelism": 129}, "--parallelism: got 129, expected at most 128 with --runtime flink"),
        ({"parts": 2, "parallelism": 4}, "--parts: got 2 with --parallelism 4"),
        ({"parts": 1, "parallelism": 4, "pipeline": 2}, "give --parts 2 or a lower --parallelism"),
        ({"parallelism": 4, "pipeline": 3}, "--pipeline 3: expected a divisor of --parallelism 4"),
    ],
)
def test_bad_values_are_refused_by_name(flags: dict[str, Any], said: str) -> None:
    assert said in refusal(**flags)


def test_all_problems_are_told_at_once() -> None:
    lines = refusal(parts=0, epoch_ms=-1, partitioner="x").splitlines()
    assert [line.split(":")[0] for line in lines] == ["--parts", "--partitioner", "--epoch-ms"]


def test_missing_options_are_named() -> None:
    with pytest.raises(UsageError, match=r"--model: missing.*\n.*--events: missing.*\n.*--out: missing"):
        load_run_config({})


def test_local_runtime_ignores_the_parallelism() -> None:
    assert load(runtime="local", parallelism=4, parts=2).part_count == 2


def test_kafka_properties_are_never_shown(tmp_path: Path) -> None:
    text = 'model: M\nevents: "kafka://h:1/t"\nout: O\nfrom: latest\nkafka:\n  sasl.password: s3cret\n  group.id: g\n'
    config = from_yaml(tmp_path, text)
    assert config.client_properties["sasl.password"] == "s3cret"
    assert config.start_from == "latest"
    assert "s3cret" not in repr(config)
    assert "s3cret" not in str(config)
    for wrong in ("s3cret", ["s3cret"], {"bootstrap.servers": "s3cret"}, {"sasl.password": ["s3cret"]}):
        assert "s3cret" not in refusal(kafka=wrong)


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    text = "model: M\nevents: a.jsonl\nout: O\nepoch-events: 50\nepoch_ms: 5\ncheckpoint-interval: 1m\n"
    config = from_yaml(tmp_path, text, epoch_events=7)
    assert (config.epoch_events, config.epoch_ms, config.checkpoint_interval_s) == (7, 5, 60.0)
    assert config.events == ["a.jsonl"]


@pytest.mark.parametrize("name", option_names())
def test_every_option_can_stand_in_the_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "job.yaml").write_text(f"{name.replace('_', '-')}: x\n")
    assert read_config_file(tmp_path / "job.yaml") == {name: "x"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch-event: 5", "unknown key `epoch-event`; did you mean `epoch-events`?"),
        ("colour: red", "unknown key `colour`; see `freshet run --help`"),
        ("config: other.yaml", "unknown key `config`"),
        ("- a\n- b", "got list, expected a mapping"),
        ("5: a", "expected a mapping"),
        ("a: [", "can't be read"),
        ("epoch-ms: 5\nepoch_ms: 6", "stands there twice"),
        ("epoch-ms: soon", "job.yaml: --epoch-ms: got 'soon'"),
        ("kafka: {group.id: [1]}", "kafka: group.id: got a list, expected text or a number"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_yaml(tmp_path, text, **NEEDED)
    assert said in str(caught.value)


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert from_yaml(tmp_path, "# nothing yet\n", **NEEDED) == load()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--config .*none\.yaml: can't be read"):
        load_run_config(NEEDED, tmp_path / "none.yaml")


def test_output_goes_to_this_machine() -> None:
    assert "--out: got s3://nobucket7/x, expected a folder of this machine" in refusal(out=Path("s3://nobucket7/x"))
    assert load(out=Path("file:///data/o")).out == Path("/data/o")
    assert "--dead-letters: got s3://b/x, expected a file of this machine, or kafka://" in refusal(
        dead_letters="s3://b/x"
    )
    assert load(dead_letters="file:///data/bad.jsonl").dead_letters == "/data/bad.jsonl"


def test_a_map_of_events_is_given_as_text_or_as_a_file(tmp_path: Path) -> None:
    wanted = {"op": "`add_edge`", "src": "user", "dst": "shop"}
    (tmp_path / "map.yaml").write_text("events-map:\n  op: '`add_edge`'\n  src: user\n  dst: shop\n")
    for given in ('{"op": "`add_edge`", src: user, dst: shop}', str(tmp_path / "map.yaml"), wanted):
        assert load(events_map=given).events_map == wanted
    several = load(events_map='[{when: a, op: "`add_edge`", src: b, dst: c}]').events_map
    assert [one["src"] for one in several] == ["b"]  # type: ignore[index]

"""Keywords of Python as options of the command: what becomes of them, and what is refused with which sentence."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import freshet
from freshet.errors import InputError, UnknownOptionError, UsageError
from freshet.job.commands.check import check
from freshet.job.commands.embed import embed
from freshet.job.options.run_config import option_names
from freshet.job.python.options import keywords, options_of
from freshet.job.python.words import CommandWords

EVENTS_MAP = {"op": "`add_edge`", "src": "user", "dst": "shop"}
NEEDED: dict[str, Any] = {"model": "M", "events": "e.jsonl", "out": "O"}


def test_each_option_is_a_keyword() -> None:
    names = {name.rstrip("_") for name in keywords()}
    assert names == {*option_names(), "config"}
    assert {"detach", "checkpoint_interval", "events_map"} <= set(freshet.run.__signature__.parameters)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"events": ["a", Path("b")]}, ["--events", "a", "--events", "b"]),
        ({"parts": 4}, ["--parts=4"]),
        ({"from_": "latest", "events": "kafka://h:1/t"}, ["--events", "kafka://h:1/t", "--from=latest"]),
        ({"undirected": True}, ["--undirected"]),
        ({"undirected": False}, ["--directed"]),
        ({"take_topic": None}, []),
        ({"checkpoint_interval": 10}, ["--checkpoint-interval=10s"]),
        ({"checkpoint_interval": 0.5}, ["--checkpoint-interval=500ms"]),
        ({"checkpoint_interval": timedelta(minutes=2)}, ["--checkpoint-interval=2m"]),
        ({"checkpoint_interval": "10s"}, ["--checkpoint-interval=10s"]),
        ({"edge_ttl": timedelta(days=30)}, ["--edge-ttl=30d"]),
        ({"edge_ttl": 60}, ["--edge-ttl=1min"]),
        ({"latency_target": 0.05}, ["--latency-target=50ms"]),
        ({"memory": 1 << 31}, ["--memory=2GiB"]),
        ({"max_rejected": 0.05}, ["--max-rejected=5%"]),
        ({"max_rejected": False}, ["--max-rejected=off"]),
        ({"layer_parallelism": (1, 2), "parts": 2}, ["--layer-parallelism=1,2", "--parts=2"]),
    ],
)
def test_values_are_written_as_people_write_them(given: dict[str, Any], words: list[str]) -> None:
    found = options_of({**NEEDED, **given})
    rest = [f"--{name}={NEEDED[name]}" for name in ("model", "out")]
    rest += [] if "events" in given else ["--events", "e.jsonl"]
    assert sorted(found.words) == sorted([*rest, *words])


def test_options_without_a_flag_and_secrets_stand_in_a_file(tmp_path: Path) -> None:
    base = tmp_path / "job.yaml"
    base.write_text(yaml.safe_dump({"parts": 3, "flink": {"s3.endpoint": "http://a"}, "keep-cuts": True}))
    more = {"tail": 1 << 28, "flink": {"s3.secret-key": "hidden"}, "kafka": {"group.id": "g"}, "restarts": 3}
    more["events_map"] = EVENTS_MAP
    found = options_of({**NEEDED, "config": base, **more})
    assert found.config.part_count == 3 and found.config.restarts == 3
    words = found.arguments(tmp_path / "there") if (tmp_path / "there").mkdir() is None else []
    assert words[-1] == f"--config={tmp_path / 'there' / 'job.yaml'}" and "hidden" not in " ".join(words)
    written = yaml.safe_load((tmp_path / "there" / "job.yaml").read_text())
    assert written["flink"] == {"s3.endpoint": "http://a", "s3.secret-key": "hidden"}
    assert written["events_map"] == EVENTS_MAP
    assert written["tail"] == "256MiB" and written["kafka"] == {"group.id": "g"}
    assert (written["parts"], written["keep_cuts"], written["restarts"]) == (3, True, 3)
    assert (tmp_path / "there" / "job.yaml").stat().st_mode & 0o077 == 0
    assert "hidden" not in repr(found)


def test_config_may_be_a_mapping_over_which_keywords_win(tmp_path: Path) -> None:
    config = {"parts": 3, "checkpoint-interval": timedelta(seconds=5), "runtime": "local", "events": [Path("f")]}
    given = {name: value for name, value in NEEDED.items() if name != "events"}
    found = options_of({**given, "parts": 4, "config": config})
    assert found.config.part_count == 4 and found.config.checkpoint_interval_s == 5
    words = found.arguments(tmp_path)
    assert yaml.safe_load((tmp_path / "job.yaml").read_text())["events"] == ["f"]
    assert "--parts=4" in words


def test_a_file_alone_is_given_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(NEEDED))
    found = options_of({"config": str(tmp_path / "job.yaml")})
    assert found.arguments(tmp_path) == [f"--config={tmp_path / 'job.yaml'}"]


@pytest.mark.parametrize(
    ("given", "option", "sentence"),
    [
        ({"parts": "x"}, "--parts", "Invalid value for '--parts': 'x' is not a valid int"),
        ({"parts": 0}, "--parts", "--parts: got 0, expected greater than or equal to 1"),
        ({"runtime": "spark"}, "--runtime", "Invalid value for '--runtime': 'spark' is not one of 'flink', 'local'"),
        ({"runtime": "local", "stay": True}, "--stay", "--stay: --runtime local ends when its input does"),
        ({"checkpoint_interval": 0}, "--checkpoint-interval", "expected a duration longer than zero"),
        ({"edge_ttl": "soon"}, "--edge-ttl", "--edge-ttl: got 'soon', expected a duration such as 10s"),
        ({"memory": -1}, "--memory", "--memory: got '-1B', expected a size"),
        ({"stay": "yes"}, "--stay", "--stay: got 'yes', expected True or False"),
        ({"events_map": 3}, "--events-map", "--events-map: got 3, expected YAML"),
        ({"kafka": 3}, "kafka", "kafka: got int, expected a mapping"),
        ({"flink": {"nope.x": 1}}, "-D", "-D: nope.x: not an option of Flink"),
        ({"model": None}, "--model", "--model: missing; give the flag"),
        ({"config": "/no/such.yaml"}, "--config", "--config /no/such.yaml: can't be read"),
        ({"partz": 3}, "partz", "partz: no option of `freshet run` has this name; did you mean parts?"),
        ({"config": {"partz": 3}}, "partz", "partz: no option of `freshet run` has this name"),
        ({"zzz": 3}, "zzz", "zzz: no option of `freshet run` has this name; see `freshet run --help`"),
    ],
)
def test_what_is_wrong_is_refused_with_the_sentence_of_the_command(
    given: dict[str, Any], option: str, sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        freshet.run(**{**NEEDED, **given})
    assert sentence in str(caught.value)
    assert caught.value.option == option


def test_unknown_keywords_are_also_errors_of_types() -> None:
    with pytest.raises(TypeError) as caught:
        freshet.check(modle="M")
    assert isinstance(caught.value, UnknownOptionError) and "did you mean model?" in str(caught.value)


def test_options_of_other_commands() -> None:
    words = CommandWords("embed", embed)
    options = {"model": "M", "snapshot": "S", "out": Path("S2"), "for_": "serving", "memory": 1 << 30, "parts": None}
    found = words.words({**options, "define": {"s3.endpoint": "http://a"}, "undirected": True})
    expected = "--model=M --snapshot=S --out=S2 --for=serving --memory=1GiB -D s3.endpoint=http://a --undirected"
    assert found == expected.split()
    with pytest.raises(UsageError, match="Missing option '--model'") as caught:
        words.parse(["--out=O"])
    assert caught.value.option == "--model"
    assert (
        CommandWords("check", check).words({"events": ("a", "b"), "every": 3})
        == "--events a --events b --every=3".split()
    )

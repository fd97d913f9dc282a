"""All options of `freshet run`, and checks of their combinations."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import Any

from pydantic import BaseModel, model_validator
from pydantic.fields import FieldInfo

from freshet.job.kafka.address import KafkaAddress, is_kafka
from freshet.job.kafka.topic_specs import COMMITTED
from freshet.job.options.epoch_options import EpochOptions
from freshet.job.options.input_options import GraphOptions, InputOptions
from freshet.job.options.marks import FILE, Holds, Option, Options
from freshet.job.options.output_options import ASKED, OutputOptions
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.options.runtime_options import FLINK_PARTS_MAX, FaultOptions, RuntimeOptions
from freshet.job.units import format_milliseconds_or_off

_MILLISECONDS = "edge_ttl_ms", "ts_jump_ms", "epoch_event_time_ms", "idle_ms"


class RunConfig(
    FaultOptions, EpochOptions, PartitioningOptions, RuntimeOptions, GraphOptions, OutputOptions, InputOptions
):
    """Every option of `freshet run`, by the name that its flag and its key in the --config file have.

    Units: `checkpoint_interval_s`, `latency_target_given` seconds, `memory_bytes` bytes, `epoch_ms_given` milliseconds.
    Raises: ValidationError naming each option that does not fit; `load_run_config` words it for people.
    """

    @model_validator(mode="after")
    def _fit_together(self) -> RunConfig:
        self._fit_kafka()
        if self.runtime == "local" and self.stay:
            msg = "--stay: --runtime local ends when its input does; take flink, or leave --stay out"
            raise ValueError(msg)
        if self.runtime == "local" and self.cluster:
            msg = "--cluster: goes with --runtime flink only; leave one of the two out"
            raise ValueError(msg)
        if self.detach:
            self._fit_detach()
        self._fit_asked()
        if self.runtime == "flink":
            self._fit_flink()
        if self.resume is None and (msg := self.epochs_that_disagree()):  # else the job's own options come first
            raise ValueError(msg)
        if self.resume is None and "idle_ms" in self.model_fields_set and not self.epoch_event_time_ms:
            msg = "--idle: goes with --epoch-event-time only; leave it out"
            raise ValueError(msg)
        return self

    def served(self, *, are_asked: bool) -> dict[str, Any]:
        """Return the server beside the run: its port, and more options of `freshet serve`, also of its --config file.

        `are_asked`: whether embeddings of the job are computed as they are asked for.
        """
        layers = [text for one in self.layers for text in ("--layers", one)]
        more = [*(["--what-if", "base"] if self.what_if else []), *(layers if self.what_if or are_asked else [])]
        config = {"kafka": self.kafka} if (self.what_if or are_asked) and self.kafka else {}
        return {"flight_port": self.flight_port, "server_options": more, "server_config": config}

    def _fit_flink(self) -> None:
        for name, given in (("--parallelism", self.parallelism), ("--parts", self.parts or 1)):
            if given > FLINK_PARTS_MAX and self.resume is None:  # else its parts and its runtime are the job's
                msg = (
                    f"{name}: got {given}, expected at most {FLINK_PARTS_MAX} with --runtime flink; give a lower number"
                )
                raise ValueError(msg)
        if self.layer_parallelism is not None:
            self._fit_layers(self.layer_parallelism)
            return
        if self.parallelism % (self.pipeline or 1):
            msg = f"--pipeline {self.pipeline}: expected a divisor of --parallelism {self.parallelism}"
            raise ValueError(msg)
        if self.parts is not None and self.parts < self.subtasks_most:
            msg = (
                f"--parts: got {self.parts} with --parallelism {self.parallelism}, expected at least as many parts as "
                f"subtasks; give --parts {self.subtasks_most} or a lower --parallelism"
            )
            raise ValueError(msg)

    def _fit_layers(self, by_layer: tuple[int, ...]) -> None:
        shown, most = ",".join(map(str, by_layer)), max(by_layer)
        limits = [("--parts", self.parts, "parts"), ("--runtime flink", FLINK_PARTS_MAX, "parts at most")]
        if "parallelism" in self.model_fields_set:
            limits.append(("--parallelism", self.parallelism, "processes"))
        for option, limit, noun in limits:
            if limit is not None and most > limit:
                msg = (
                    f"--layer-parallelism {shown}: layer {by_layer.index(most) + 1} would have {most} processes, and "
                    f"{option} has {limit} {noun}; give at most {limit}"
                )
                raise ValueError(msg)

    def _fit_detach(self) -> None:
        if self.cluster is None:
            msg = "--detach: goes with --cluster HOST:PORT only, since other jobs end with their command; leave it out"
            raise ValueError(msg)
        if self.flight_port is not None:
            msg = (
                "--detach: the server of --flight-port ends with this command; leave --flight-port out, and start "
                "`freshet serve --tables OUT/tables`"
            )
            raise ValueError(msg)

    def _fit_asked(self) -> None:
        for name, given in (("--embeddings-to", self.embeddings_to), ("--tables", self.tables_folder)):
            if self.embeddings == ASKED and given is not None:
                msg = (
                    "--embeddings asked: embeddings are computed as the server of OUT/tables is asked for them, so "
                    f"none can be written elsewhere; leave {name} out"
                )
                raise ValueError(msg)

    def _fit_kafka(self) -> None:
        topics = any(map(is_kafka, self.events))
        for name, given in (("--from", "start_from" in self.model_fields_set), ("--until", self.until is not None)):
            if given and not topics:
                msg = f"{name}: goes with a Kafka topic in --events only; leave it out"
                raise ValueError(msg)
        if topics and self.runtime == "local":
            msg = "--runtime local: reads files only, for Kafka's offsets belong to Flink's checkpoints; take flink"
            raise ValueError(msg)
        for option in self.output_topics if self.runtime == "local" else ():
            msg = f"{option}: --runtime local writes files only; take flink, or leave {option} out"
            raise ValueError(msg)
        used = [address.topic for _, address in self.topics]
        if len(set(used)) < len(used):
            msg = f"--events, --embeddings-to, --dead-letters: expected different topics, got {', '.join(used)}"
            raise ValueError(msg)
        if self.embeddings_from_start and self.embeddings_to is None and self.resume is None:
            msg = "embeddings-from-start: goes with --embeddings-to kafka://HOST:PORT/TOPIC only; leave it out"
            raise ValueError(msg)
        if topics and self.stay:
            msg = "--stay: a run on Kafka goes on by itself; leave --stay out (and --until too, to go on)"
            raise ValueError(msg)
        self._fit_registry(topics)
        if self.start_from == COMMITTED and "group.id" not in self.kafka:
            msg = "--from committed: give the group whose offsets are meant as `kafka: {group.id: ...}` in --config"
            raise ValueError(msg)

    def _fit_registry(self, topics: bool) -> None:
        if self.resume is not None:  # the job's own options come first
            return
        if self.message_format is not None and not topics:
            msg = "--format: goes with a Kafka topic in --events only; leave it out"
            raise ValueError(msg)
        if self.message_format in ("avro", "protobuf") and self.registry is None:
            msg = f"--format {self.message_format}: needs the schemas; give --registry URL"
            raise ValueError(msg)
        if self.registry is not None and self.message_format is None:
            msg = "--registry: goes with --format avro, protobuf or json-schema only; give --format, or leave it out"
            raise ValueError(msg)

    @property
    def topics(self) -> list[tuple[str, KafkaAddress]]:
        """The topics that are read and written, each with its option."""
        read = [("--events", KafkaAddress.parse(value)) for value in self.events if is_kafka(value)]
        return [*read, *self.output_topics.items()]

    @property
    def logs_in_by_tokens(self) -> bool:
        """True if the job's clients of Kafka need the connector for logins by tokens."""
        return bool(self.topics) and not self.client_properties.is_shaded

    @property
    def part_count(self) -> int:
        """Parts of a new job; a resumed one takes them from its state."""
        return self.parts if self.parts is not None else self.subtasks_most

    @property
    def subtasks_most(self) -> int:
        """Largest number of subtasks of a layer; fewer if processes share the layers by default."""
        if self.layer_parallelism is not None:
            return max(self.layer_parallelism)
        return max(1, self.parallelism // (self.pipeline or 1))


def option_fields() -> dict[str, tuple[FieldInfo, Option]]:
    """The options by the names that the --config file uses, in the order of help, with their marks."""
    fields = RunConfig.model_fields.items()
    return {field.alias or name: (field, _mark(field)) for name, field in fields}


def option_names() -> list[str]:
    """The options by the names that the --config file uses."""
    return list(option_fields())


def nearest_option(name: str) -> str | None:
    """Return the option that somebody may have meant, by its name in the --config file."""
    return next(iter(difflib.get_close_matches(name, option_names(), n=1, cutoff=0.7)), None)


def option_name(field: str) -> str:
    """Return the name of a field in the --config file."""
    return RunConfig.model_fields[field].alias or field


def written(field: str) -> str:
    """An option as people write it: its flag, or its key where it stands in the --config file alone."""
    name, mark = option_name(field), _mark(RunConfig.model_fields[field])
    return name.replace("_", "-") if mark.panel == FILE else mark.flag_of(name)


def with_value(field: str, value: Any) -> str:
    """An option with its value, as people write them."""
    if field == "undirected":
        return "--undirected" if value else "--directed"
    name, value = written(field), value_in_words(field, value)
    return f"{name} {value}" if name.startswith("--") else f"`{name}: {value}` in --config"


def value_in_words(field: str, value: Any) -> Any:
    """A value of an option as people write it, where that differs from what it is."""
    return format_milliseconds_or_off(value) if field in _MILLISECONDS else value


def that_hold(how_long: Holds) -> list[tuple[str, Option]]:
    """The fields of the options that hold so long, with their marks."""
    marks = [(name, _mark(field)) for name, field in RunConfig.model_fields.items()]
    return [(name, mark) for name, mark in marks if mark.holds is how_long]


def _mark(field: FieldInfo) -> Option:
    return next(one for one in field.metadata if isinstance(one, Option))


def option_values(config: Options, kind: type[Any]) -> dict[str, Any]:
    """The fields of a class that are options or follow from options, with their values.

    One that is None says nothing: the run finds it out, or the class's own default holds.
    """
    values = {name: getattr(config, name) for name in _fields(kind) if is_option(name, type(config))}
    return {name: value for name, value in values.items() if value is not None}


def option_values_of_a_run(config: RunConfig, kind: type[Any]) -> dict[str, Any]:
    """Return the fields that each run of a job sets again: all but those fixed for the job's life."""
    for_life = {name for name, _ in that_hold(Holds.FOR_LIFE)}
    return {name: value for name, value in option_values(config, kind).items() if name not in for_life}


def is_option(name: str, options: type[Options] = RunConfig) -> bool:
    """Return whether a field of this name gets its value from the options."""
    return name in options.model_fields or isinstance(getattr(options, name, None), property)


def _fields(kind: type[Any]) -> list[str]:
    return list(kind.model_fields) if issubclass(kind, BaseModel) else [field.name for field in fields(kind)]

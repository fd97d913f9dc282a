"""Options of `freshet run` for its input: model, events, and the graph to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from freshet.job.errors import UsageError
from freshet.job.kafka.address import KafkaAddress, is_kafka
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import EARLIEST, parse_start
from freshet.job.options.layers import LAYERS_HELP
from freshet.job.options.marks import FILE, IO, Count, Holds, MillisecondsOrOff, Option, Options
from freshet.job.uris import folder_here
from freshet.operators.limits import ID_BYTES_MAX
from freshet.operators.parser.formats import SUFFIXES
from freshet.partitioner.times.units import MS, TsUnit

IdType = Literal["int", "string"]


def _mapping_of(value: object, example: str) -> dict[Any, Any]:
    """The mapping; nothing is an empty one."""
    if value is not None and not isinstance(value, dict):
        msg = f"got {type(value).__name__}, expected a mapping such as `{example}`"
        raise ValueError(msg)
    return value or {}


def _written_map(text: str) -> object:
    """The content of a map that is given as text, or as the name of a file with it."""
    import yaml

    is_text = text.lstrip()[:1] in ("{", "[")
    try:
        found: object = yaml.safe_load(text if is_text else Path(text).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        what = f"got {text}, expected YAML such as '{{src: user}}', or a file that has it"
        msg = f"{what}: {' '.join(str(error).split())}"
        raise ValueError(msg) from None
    if isinstance(found, dict) and found.keys() in ({"events-map"}, {"events_map"}):
        (found,) = found.values()
    return found


class InputOptions(Options):
    """Inputs of the job, and its output folder."""

    model: Annotated[Path, Option(IO)] = Field(description="Model folder (model.json, model.safetensors).")
    events: Annotated[list[str], Option(IO)] = Field(
        min_length=1,
        description=f"Event file ({', '.join(SUFFIXES)}), folder of such files, or kafka://HOST:PORT/TOPIC; "
        "repeatable.",
    )
    out: Annotated[Path, Option(IO)] = Field(description="Output folder; must be empty unless --resume.")
    start_from: Annotated[str, Option(IO)] = Field(
        default=EARLIEST,
        alias="from",
        description="Start in a Kafka topic: earliest, latest, committed (of kafka: group.id), or timestamp:MS.",
    )
    until: Annotated[Literal["latest"] | None, Option(IO)] = Field(
        default=None,
        description="latest: end at the Kafka topics' end offsets, read at start and at resume (default: run on).",
    )
    message_format: Annotated[Literal["avro", "protobuf", "json-schema"] | None, Option(IO, Holds.FOR_LIFE)] = Field(
        default=None,
        alias="format",
        description="Format of Kafka messages whose schemas are in a registry: avro, protobuf or json-schema (default: "
        "JSON lines and Arrow).",
    )
    registry: Annotated[str | None, Option(IO, Holds.KEPT)] = Field(
        default=None, description="With --format: address of the schema registry, such as https://registry:8081."
    )
    layers: Annotated[list[str], Option(IO)] = Field(default_factory=list, description=LAYERS_HELP)
    snapshot: Annotated[Path | None, Option(IO)] = Field(
        default=None,
        description="Graph to start from: a folder with vertices.parquet and edges.parquet. A snapshot of `freshet "
        "embed` also sets the initial state, --parts, --partitioner and direction.",
    )
    ignore_positions: Annotated[bool, Option(FILE)] = Field(
        default=False,
        description="Read all events from their beginning, including those that the snapshot.json of an export covers.",
    )
    kafka: Annotated[dict[str, Any], Option(FILE)] = Field(
        default_factory=dict, repr=False, description="Client properties for Kafka (SASL, TLS, ...)."
    )
    events_map: Annotated[dict[str, str] | tuple[dict[str, str], ...], Option(IO, Holds.FOR_LIFE)] = Field(
        default_factory=dict,
        description="JMESPath expression per event field, for records of another shape, or a list of such maps with "
        "conditions (`when`), for several events per record: as YAML on one line, or a YAML file.",
    )

    @field_validator("events", "layers", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("events")
    @classmethod
    def _addresses(cls, values: list[str]) -> list[str]:
        for value in filter(is_kafka, values):
            KafkaAddress.parse(value)
        return values

    @field_validator("out")
    @classmethod
    def _out(cls, value: Path) -> Path:
        return folder_here(value)

    @field_validator("start_from")
    @classmethod
    def _start(cls, value: str) -> str:
        parse_start(value)
        return value

    @field_validator("registry")
    @classmethod
    def _registry(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            shown = re.sub(r"//[^/]*@", "//…@", value)
            msg = (
                f"got {shown}, expected an address such as https://registry:8081; its login is "
                "`kafka: {schema.registry.basic.auth.user.info: ...}` in --config"
            )
            raise ValueError(msg)
        return value

    # Before pydantic looks at them: its own messages repeat the value, and there may be a password in it.
    @field_validator("kafka", mode="before")
    @classmethod
    def _properties(cls, value: object) -> object:
        mapping = _mapping_of(value, "security.protocol: SASL_SSL")
        try:
            ClientProperties(mapping)
        except UsageError as error:
            raise ValueError(str(error).removeprefix("kafka: ")) from None
        return mapping

    @field_validator("events_map", mode="before")
    @classmethod
    def _mapping(cls, value: object) -> object:
        from freshet.operators.parser.mapping import EventMap, several_maps

        value = _written_map(value) if isinstance(value, str) else value
        if isinstance(value, list):
            several_maps(value)
            return value
        mapping = _mapping_of(value, "src: user.id")
        EventMap(mapping)
        return mapping

    @property
    def client_properties(self) -> ClientProperties:
        """Properties of Kafka's clients, with `${NAME}` in place of secrets."""
        return ClientProperties(self.kafka)


class GraphOptions(Options):
    """Interpretation of events."""

    undirected: Annotated[bool, Option(IO, Holds.FOR_LIFE, "--undirected/--directed")] = Field(
        default=False, description="Mirror every edge of snapshot and events."
    )
    edge_ttl_ms: Annotated[MillisecondsOrOff, Option(IO, Holds.FOR_LIFE)] = Field(
        default=0,
        alias="edge_ttl",
        description="Time that an edge lives after the ts of its last add, such as 30d, by the largest ts so far; one "
        "without ts lives on.",
    )
    ts_jump_ms: Annotated[MillisecondsOrOff, Option(IO, Holds.FOR_LIFE)] = Field(
        default=None,
        alias="ts_jump",
        description="Reject an event whose ts is further ahead of the largest so far and of its neighbours (default: "
        "1d with --edge-ttl, else off).",
    )
    ts_unit: Annotated[TsUnit, Option(IO, Holds.FOR_LIFE)] = Field(
        default=MS,
        description="Unit of integers in ts: s, ms, us or ns since 1970. Timestamps of Arrow, Avro and Protobuf are "
        "taken by their type.",
    )
    id_kind: Annotated[IdType | None, Option(IO, Holds.FOR_LIFE)] = Field(
        default=None,
        alias="id_type",
        description="Kind of vertex ids (default: the snapshot's, else the first accepted event's). With string, "
        "integers are taken as the strings that write them.",
    )
    edge_key: Annotated[str | None, Option(IO, Holds.FOR_LIFE)] = Field(
        default=None,
        description="Field of events with the key of an edge, by which several stand between two vertices, or offset: "
        "each record adds an edge of its own (default: key, where the first edge has one).",
    )
    id_bytes_max: Annotated[Count, Option(FILE, Holds.FOR_LIFE)] = Field(
        default=ID_BYTES_MAX,
        ge=1,
        le=1 << 20,
        description="Maximum length of a string id or edge type, in bytes of UTF-8, fixed for the job's life; events "
        "with a longer one are rejected.",
    )

    @property
    def cast_ids(self) -> bool:
        """True if integers are taken as ids that are strings."""
        return self.id_kind == "string"

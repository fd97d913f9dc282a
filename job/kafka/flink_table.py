"""A table of Flink's Kafka connector: what source and sink have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyflink.table import Schema, TableDescriptor


def kafka_table(schema: Schema, options: Mapping[str, str]) -> TableDescriptor:
    """Return the descriptor of a table with these columns and options."""
    from pyflink.table import TableDescriptor

    builder = TableDescriptor.for_connector("kafka").schema(schema)
    for name, value in options.items():
        builder = builder.option(name, value)
    return builder.build()

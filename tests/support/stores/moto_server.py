"""An S3 of moto's on a free port of the loopback address, in a thread of this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

BUCKET = "states"
# What clients must have; moto checks neither. They are no secrets of anybody.
KEY_ID, SECRET = "moto-key-id", "moto-s3cret-0123456789"
# moto goes by the region alone in which it is asked
_REGION = "us-east-1"


@dataclass(frozen=True)
class MotoServer:
    """An S3 with one bucket, until the context of `moto_server` ends."""

    endpoint: str
    client: Any

    @property
    def uri(self) -> str:
        """The bucket."""
        return f"s3://{BUCKET}"

    def keys(self, prefix: str = "") -> list[str]:
        """The names of the objects below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return sorted(one["Key"] for page in pages for one in page.get("Contents", ()))

    def options(self) -> list[str]:
        """The flags by which a run finds it; the secret is in the environment."""
        given = {
            "s3.endpoint": self.endpoint,
            "s3.path.style.access": "true",
            "s3.access-key": KEY_ID,
            "s3.secret-key": "${MOTO_SECRET}",
        }
        return [part for key, value in given.items() for part in ("-D", f"{key}={value}")]

    def environ(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """An environment with the secret, and no other way to a store."""
        given = os.environ if environ is None else environ
        return {key: value for key, value in given.items() if not key.startswith("AWS_")} | {"MOTO_SECRET": SECRET}


@contextmanager
def moto_server() -> Iterator[MotoServer]:
    """Start the server, with its bucket."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name=_REGION,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        config=Config(proxies={}, s3={"addressing_style": "path"}),
    )
    try:
        with suppress(ClientError):
            client.create_bucket(Bucket=BUCKET)
        found = MotoServer(f"http://{host}:{port}", client)
        for key in found.keys():  # of a test before this one: moto keeps them in the process
            client.delete_object(Bucket=BUCKET, Key=key)
        yield found
    finally:
        client.close()
        server.stop()

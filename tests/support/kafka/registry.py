"""A schema registry in this process, and writers of messages for it."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro

USER_INFO = "me:reg1stry-7b2e"


class RegistryServer:
    """The part of a registry's REST interface that readers use, behind a login."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[str, dict[str, Any]] = {}  # by path below /subjects
        self.asked: list[str] = []
        self.status = 0  # for all answers, if set
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if self.headers["Authorization"] != f"Basic {base64.b64encode(USER_INFO.encode()).decode()}":
                    self._answer(401, {})
                elif outer.status:
                    self._answer(outer.status, {})
                else:
                    path = self.path.partition("?")[0]
                    found = [] if path == "/subjects" else outer.find(path)
                    self._answer(404 if found is None else 200, {"error_code": 40403} if found is None else found)

            def _answer(self, status: int, found: Any) -> None:
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def find(self, path: str) -> dict[str, Any] | None:
        if path.startswith("/schemas/ids/"):
            return self.schemas.get(int(path.rpartition("/")[2]))
        return self.versions.get(path.removeprefix("/subjects"))

    def add(self, number: int, schema: Any, references: Sequence[Mapping[str, Any]] = ()) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[number] = {"schema": text, "references": list(references)}
        return number

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    server = RegistryServer()
    try:
        yield server
    finally:
        server.close()


def framed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


def avro_message(number: int, schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return framed(number, out.getvalue())

"""/openapi.json as a contract: every answer has a schema, every operation its errors, its id and its security."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis

from freshet.job.serving.doors.access import Access, access_of
from freshet.job.serving.doors.http_server import description
from freshet.job.serving.doors.refusals import STATUS

JSON = "application/json"


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return description()


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, ways in described["paths"].items():
        for way, operation in ways.items():
            yield path, way, operation


def test_it_is_valid(described: dict[str, Any]) -> None:
    assert described["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(described).validate()
    assert "$defs" not in str(described), "bodies stand in the operations, where references of their own lead nowhere"


def test_each_operation_says_what_it_answers(described: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(described)]
    assert len(ids) == len(set(ids)) > 15
    for path, way, operation in operations(described):
        where = f"{way} {path}"
        assert operation["description"] and operation["tags"], where
        for status, answer in operation["responses"].items():
            [(kind, content)] = answer["content"].items()
            assert content["schema"] and content["schema"] != {}, (where, status)
            assert kind == JSON or (status == "200" and kind.startswith("text/")), (where, status)
        statuses = set(operation["responses"])
        assert {"200", "400", "408", "411", "413", "415", "422", "429", "431", "500", "503"} <= statuses, where
        is_open = access_of(path) is Access.OPEN
        assert ("401" in statuses, "security" in operation) == (not is_open, not is_open), where
        assert ("403" in statuses) == (access_of(path) is Access.ADMIN), where


def test_paths_of_before_are_deprecated_and_the_same(described: dict[str, Any]) -> None:
    former = [one for one in operations(described) if not one[0].startswith("/v1/")]
    assert {path for path, _, _ in former} == {
        "/embeddings", "/embeddings/{id}", "/get-online-features", "/nearest", "/score", "/healthz", "/readyz",
        "/metrics",
    }  # fmt: skip
    for path, way, operation in former:
        now = described["paths"][f"/v1{path}"][way]
        assert operation.pop("deprecated") is True and "deprecated" not in now
        assert operation.pop("operationId") == f"{now['operationId']}_unversioned"
        assert operation == {name: value for name, value in now.items() if name != "operationId"}


def test_errors_and_examples(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert set(schemas["Error"]["properties"]["kind"]["enum"]) == set(STATUS)
    assert schemas["Error"]["required"] == ["error", "kind"]
    assert described["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for name in ("OneEmbedding", "Embeddings", "NearestVertices", "Scores", "Error", "HealthFigures"):
        assert schemas[name]["examples"], name
    row = schemas["EmbeddingRow"]
    assert set(row["properties"]) == {"id", "epoch", "embedding", "logits", "class"}
    assert row["required"] == ["id", "epoch", "embedding"]

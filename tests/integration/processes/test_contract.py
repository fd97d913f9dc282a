"""The HTTP contract, by requests that schemathesis makes of /openapi.json: no answer that is not declared there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from freshet.job.serving.doors.http_server import description
from tests.support.serving.served import Served

BEARS = {"Authorization": "Bearer secret"}
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    ignored_auth,
    unsupported_method,
]


IDS = [
    operation["operationId"]
    for ways in description()["paths"].values()
    for operation in ways.values()
    if not operation.get("deprecated") and operation["operationId"] != "get_changes"  # which does not end
]


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    one = Served(tmp_path_factory.mktemp("served") / "O", "int", token="secret")
    one.hand.apply(2, (dict.fromkeys(range(10, 40), 2.0), []), ({}, []))
    one.until(2)
    yield schemathesis.openapi.from_asgi("/openapi.json", one.http.app, headers=BEARS)
    one.close()


@pytest.mark.parametrize("name", IDS)
def test_every_answer_is_declared(contract: Any, name: str) -> None:
    [operation] = [one.ok() for one in contract.include(operation_id=name).get_all_operations()]
    for mode in GenerationMode:

        @settings(max_examples=10, derandomize=True, deadline=None, database=None, suppress_health_check=[*HealthCheck])
        @given(operation.as_strategy(generation_mode=mode))
        def holds(case: schemathesis.Case) -> None:
            for fields in (case.body, case.query):
                if isinstance(fields, dict) and {"min_epoch", "min_position"} & fields.keys():
                    fields["timeout"] = 0  # what it asks for does not come
            answer = case.call_and_validate(headers=BEARS, checks=CHECKS)
            assert answer.status_code < 500 or answer.status_code == 504, answer.text

        with suppress(Unsatisfiable):  # an operation without a field has no wrong request
            holds()

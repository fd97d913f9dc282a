"""The reference of the HTTP interface, from the description that a server gives at /v1/openapi.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from freshet.job.serving.doors.http_server import description

_ERROR = "[Error](#error)"
_MORE = "A server has the same description at `/v1/openapi.json`, and shows it at `/docs`."


def page() -> str:
    """Markdown: a section for each operation, and one for each schema; deprecated paths are left out."""
    described = description()
    lines = ["# HTTP\n", described["info"].get("description", ""), "", _MORE, ""]
    for path, of_path in described["paths"].items():
        for method, one in of_path.items():
            if not one.get("deprecated"):
                lines += _operation(method.upper(), path, one)
    lines += ["## Schemas\n"]
    for name, one in described.get("components", {}).get("schemas", {}).items():
        lines += [f"### {name}\n", one.get("description", ""), "", *_fields(one)]
    return "\n".join(lines)


def _operation(method: str, path: str, one: dict[str, Any]) -> Iterator[str]:
    yield f"## `{method} {path}`\n"
    yield one.get("description") or one.get("summary") or ""
    yield ""
    if parameters := one.get("parameters"):
        yield "| parameter | in | type | meaning |\n|---|---|---|---|"
        for each in parameters:
            schema, mark = each.get("schema", {}), " (required)" if each.get("required") else ""
            about = each.get("description") or schema.get("description") or ""
            yield f"| `{each['name']}`{mark} | {each['in']} | {_type(schema)} | {_cell(about)} |"
        yield ""
    for kind, content in one.get("requestBody", {}).get("content", {}).items():
        yield f"Body, `{kind}`: {_type(content.get('schema', {}))}\n"
        yield from _fields(content.get("schema", {}))
        yield from _examples(content)
    yield from _answers(one.get("responses", {}))


def _answers(responses: dict[str, Any]) -> Iterator[str]:
    of_status = {
        status: ", ".join(_type(of.get("schema", {})) for of in answer.get("content", {}).values())
        for status, answer in responses.items()
    }
    errors = {status: responses[status]["description"] for status, types in of_status.items() if types == _ERROR}
    yield "| status | answer |\n|---|---|"
    for status, types in of_status.items():
        if status not in errors:
            yield f"| {status} | {_cell(responses[status].get('description', ''))}{': ' + types if types else ''} |"
    if errors:
        yield f"| others | {_ERROR}: {', '.join(f'{status} {_kind(about)}' for status, about in errors.items())} |"
    yield ""
    for status, answer in responses.items():
        if status not in errors:
            for content in answer.get("content", {}).values():
                yield from _examples(content)


def _kind(about: str) -> str:
    """The kind of an error, of its description."""
    return f"`{about.rpartition(': ')[2]}`"


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    if not (fields := schema.get("properties")):
        return
    yield "| field | type | meaning |\n|---|---|---|"
    for name, one in fields.items():
        mark = " (required)" if name in schema.get("required", ()) else ""
        yield f"| `{name}`{mark} | {_type(one)} | {_cell(one.get('description', ''))} |"
    yield ""


def _examples(content: dict[str, Any]) -> Iterator[str]:
    found = [content["example"]] if "example" in content else []
    found += [one["value"] for one in content.get("examples", {}).values() if "value" in one]
    for one in found[:2]:
        yield "```json\n" + json.dumps(one, ensure_ascii=False) + "\n```\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[word]))
    kind = schema.get("type", "any")
    kinds = kind if isinstance(kind, list) else [kind]
    return " or ".join(f"array of {_type(schema.get('items', {}))}" if one == "array" else one for one in kinds)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

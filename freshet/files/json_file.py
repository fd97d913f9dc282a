"""Small JSON files that Freshet writes and reads back: whole, with a checksum, or refused by name.

The checksum stands in the object itself, as `crc32`, over all else that it holds. A file without one is read as well:
of an earlier version, or a person's.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshet.errors import InputError
from freshet.files.whole import write_whole

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_SHOWN = 80
_CRC32 = "crc32"


class DamagedFileError(InputError):
    """A file that Freshet has written is not as it was written; the message names it and says what to do."""


def write_json(path: Path, content: Mapping[str, Any], *, synced: bool = True) -> None:
    """Write an object in one step, with its checksum; see `write_whole` for `synced`, and for what it raises.

    The folder is made where it is not there.
    Raises: InputError for text that no JSON file can hold, such as a path that is no UTF-8.
    """
    plain = json.loads(json.dumps({name: value for name, value in content.items() if name != _CRC32}))
    text = json.dumps({**plain, _CRC32: _checksum(plain)}, indent=1 if synced else None, ensure_ascii=False)
    try:
        data = (text + "\n").encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - _SHOWN) : error.end + _SHOWN].strip()
        msg = f"{path}: can't be written: {around!r} is no UTF-8; give another name to what it names"
        raise InputError(msg) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, synced=synced)


def read_json(path: Path, kind: Any, advice: str) -> Any:
    """The content of a file, of this kind (what pydantic knows: a dataclass, a typed dict, `dict[str, int]`).

    None where there is no such file. `advice`: what to do where it is damaged.

    Raises: DamagedFileError when it can't be read, is no JSON, or not of this kind.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedFileError(_refusal(path, f"can't be read: {error.strerror}", advice)) from None
    try:
        return parse_json(data, kind)
    except ValueError as error:
        raise DamagedFileError(_refusal(path, f"damaged: {error}", advice)) from None


def parse_json(data: bytes, kind: Any) -> Any:
    """JSON of this kind.

    Raises: ValueError saying what does not fit.
    """
    if not data.strip(b"\0"):
        msg = f"expected JSON, got {f'{len(data)} zero bytes' if data else 'an empty file'}"
        raise ValueError(msg)
    if _CRC32.encode() not in data:
        return _validated(data, kind)
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        msg = f"no JSON: {str(error).partition(' (char')[0][:_SHOWN]}"
        raise ValueError(msg) from None
    if isinstance(content, dict) and _CRC32 in content:
        recorded = content.pop(_CRC32)
        if recorded != _checksum(content):
            msg = "its content does not match its checksum"
            raise ValueError(msg)
    return as_kind(content, kind)


def _checksum(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def as_kind(content: Any, kind: Any) -> Any:
    """A JSON value as this kind; lists may stand for tuples, integers for numbers, and nothing else for anything.

    Raises: ValueError saying what does not fit.
    """
    return _validated(json.dumps(content).encode(), kind)


def _validated(data: bytes, kind: Any) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        msg = f"{where}: {first['msg']}" if where else first["msg"]
        raise ValueError(msg) from None


@lru_cache(maxsize=64)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _refusal(path: Path, what: str, advice: str) -> str:
    return f"{path}: {what}; {advice}"

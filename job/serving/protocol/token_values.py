"""ServerTokens as they are given: a token itself, or the path of a file with one on each line."""

from __future__ import annotations

import os
from pathlib import Path

from freshet.errors import InputError

FILE_BYTES_MAX = 64 << 10


class TokenError(InputError):
    """A value that gives no token; the message says why, without the value where that may be a secret."""


def is_token_file(value: str) -> bool:
    """Return whether a value is the path of an existing file.

    Raises: TokenError for the path of a folder or a pipe, which must not become the token itself.
    """
    if os.path.isfile(value):
        return True
    if os.sep in value and os.path.exists(value):
        msg = f"{value}: expected a token, or a file of tokens, which can be read again; this is neither"
        raise TokenError(msg)
    return False


def read_token_file(path: str) -> tuple[str, ...]:
    """Return the tokens of a file, at least one.

    Raises: TokenError
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        msg = f"{path}: can't be read: {error.strerror}"
        raise TokenError(msg) from error
    if len(raw) > FILE_BYTES_MAX:
        msg = f"{path}: expected a file of tokens, one a line, of at most {FILE_BYTES_MAX:,} bytes"
        raise TokenError(msg)
    found = [line.strip() for line in raw.splitlines()]
    for number, line in enumerate(found, 1):
        if not all(0x20 < one < 0x7F for one in line):
            msg = f"{path}: line {number}: expected one token, of visible ASCII characters without spaces"
            raise TokenError(msg)
    tokens = tuple(dict.fromkeys(line.decode() for line in found if line))
    if not tokens:
        msg = f"{path}: the file is empty; write one token on each line"
        raise TokenError(msg)
    return tokens


def token_to_send(value: str | None) -> str | None:
    """Return the token that a client sends: of a file the first one, as it is now.

    Raises: TokenError
    """
    return read_token_file(value)[0] if value and is_token_file(value) else value

"""Ids of a request in the form that the table has them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import IDS_MAX
from freshet.state.served.ids import Ids, Texts, frozen

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


def ids_of_values(values: object, strings: bool) -> Ids:
    """Return the ids of a list; of a table with integers, an integer may be written as a string.

    Raises: BadRequestError naming the first that is of another kind.
    """
    if not isinstance(values, list) or len(values) > IDS_MAX:
        got = f"{len(values):,}" if isinstance(values, list) else type(values).__name__
        msg = f"ids: expected a list of at most {IDS_MAX:,}, got {got}; ask for all at once, or in several requests"
        raise BadRequestError(msg)
    wrong = _wrong(values, strings)
    if wrong and not strings:
        values = as_stored(values, strings)
        wrong = _wrong(values, strings)
    if not wrong:
        if not strings:
            return frozen(np.array(values, np.int64))
        try:
            return Texts.encode(values)
        except UnicodeEncodeError as error:
            wrong = [error.object]
    kind = "strings" if strings else "integers of 64 bits (also as strings of digits)"
    msg = f"ids: expected {kind}, got {str(wrong[0])[:50]!r} ({type(wrong[0]).__name__})"
    raise BadRequestError(msg)


def as_stored(values: list[Any], strings: bool) -> list[Any]:
    """Return ids with integers that are written as strings as integers, where the table has integers."""
    if strings:
        return values
    return [int(one) if type(one) is str and _INTEGER.fullmatch(one) else one for one in values]


def _wrong(values: list[Any], strings: bool) -> list[Any]:
    return [one for one in values if not (isinstance(one, str) if strings else _is_int64(one))][:1]


def _is_int64(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63

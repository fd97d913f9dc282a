"""Ids of a request in the form that the table has them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

import numpy as np

from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import IDS_MAX, PAIRS_MAX
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
    return _refuse(wrong[0], strings) if wrong else _encoded(values, strings)


class AskedPairs(NamedTuple):
    """Pairs of ids: each id once, in the order of their coming, and which of them is at either end of each pair.

    `ids`: of both ends together, or of the left and the right ones apart.
    """

    ids: tuple[Ids, ...]
    left: np.ndarray  # (pairs,) int64
    right: np.ndarray


def pairs_of_values(values: object, strings: bool, apart: bool = False) -> AskedPairs:
    """Return the pairs of a list of lists of two ids each; `apart`: their ends are of two kinds of vertices.

    Raises: BadRequestError naming the first that is none, or an id of another kind.
    """
    if not isinstance(values, list) or len(values) > PAIRS_MAX:
        got = f"{len(values):,}" if isinstance(values, list) else type(values).__name__
        msg = f"pairs: expected a list of at most {PAIRS_MAX:,}, got {got}; ask in several requests"
        raise BadRequestError(msg)
    for one in values:
        if not isinstance(one, list) or len(one) != 2:
            msg = f"pairs: expected [LEFT, RIGHT] each, got {str(one)[:50]!r}"
            raise BadRequestError(msg)
    ends = as_stored([end for one in values for end in one], strings)
    if wrong := _wrong(ends, strings):
        _refuse(wrong[0], strings)
    sides = [ends[::2], ends[1::2]] if apart else [ends]
    ids, at = zip(*(_each_once(side, strings) for side in sides), strict=True)
    return AskedPairs(ids, *(at if apart else (at[0][::2].copy(), at[0][1::2].copy())))


def _each_once(values: list[Any], strings: bool) -> tuple[Ids, np.ndarray]:
    """Return each id once, and the place of each value among them."""
    places = {one: k for k, one in enumerate(dict.fromkeys(values))}
    return _encoded(list(places), strings), np.fromiter((places[one] for one in values), np.int64, len(values))


def as_stored(values: list[Any], strings: bool) -> list[Any]:
    """Return ids with integers that are written as strings as integers, where the table has integers."""
    if strings:
        return values
    return [int(one) if type(one) is str and _INTEGER.fullmatch(one) else one for one in values]


def _encoded(values: list[Any], strings: bool) -> Ids:
    if not strings:
        return frozen(np.array(values, np.int64))
    try:
        return Texts.encode(values)
    except UnicodeEncodeError as error:
        _refuse(error.object, strings)


def _refuse(id_: object, strings: bool) -> NoReturn:
    kind = "strings" if strings else "integers of 64 bits (also as strings of digits)"
    msg = f"ids: expected {kind}, got {str(id_)[:50]!r} ({type(id_).__name__})"
    raise BadRequestError(msg)


def _wrong(values: list[Any], strings: bool) -> list[Any]:
    return [one for one in values if not (isinstance(one, str) if strings else _is_int64(one))][:1]


def _is_int64(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63

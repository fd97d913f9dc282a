"""Names of kinds of vertices as names of folders and topics: plain ones as they are, all others reversibly."""

from __future__ import annotations

import re
from hashlib import blake2b
from urllib.parse import unquote

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")  # names of kinds that are names of folders and topics
_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.")
_WRITTEN_MAX = 120  # a topic has 249 characters, of which some are another name
_CUT = re.compile(r"[A-Za-z0-9_.%]{0,100}%-[0-9a-f]{16}")


def written_kind(kind: str) -> str:
    """Return the name of a kind as that of a folder: a plain one as it is, of others UTF-8 in percent-encoding.

    Of one that would take more than 120 characters the beginning is kept, with a hash. Percent-decoding gives the kind
    again, unless it was cut.
    """
    if _PLAIN.fullmatch(kind) or _CUT.fullmatch(kind) or not kind:
        return kind
    text = kind.encode()
    found = "".join(chr(one) if one in _KEPT else f"%{one:02X}" for one in text)
    if not found[0].isalnum():  # `..`, and files that begin with `.` or `_` are unfinished
        found = f"%{text[0]:02X}" + found[1:] if found[0] != "%" else found
    if len(found) <= _WRITTEN_MAX:
        return found
    whole = re.sub("%.?$", "", found[:100])
    return f"{whole}%-{blake2b(text, digest_size=8).hexdigest()}"


def read_kind(written: str) -> str:
    """Return the kind whose folder has this name, the inverse of `written_kind`; a name that was cut as it is."""
    return written if _CUT.fullmatch(written) else unquote(written)


def topic_end(kind: str) -> str:
    """Return the end of the name of a kind's topic: as that of the folder, with `-` for `%`, which topics can't have.

    It then begins with `-`, as no plain name does, and has no other `-`.
    """
    written = written_kind(kind)
    return "-" + written.replace("%", "-") if "%" in written else written

"""The place of a company's own from which Java artifacts are fetched, by `$FRESHET_ARTIFACTS`, not from Maven Central.

It is a folder or a web address (`http://`, `https://`, `file://`), laid out as a Maven repository
(`org/apache/flink/NAME/VERSION/NAME-VERSION.jar`) or with all jars in one folder, as in Freshet's own cache.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from freshet.job.errors import UsageError

VARIABLE = "FRESHET_ARTIFACTS"
_TIMEOUT_S = 30.0
_WEB = ("http://", "https://")


def given_mirror() -> str | None:
    """Return what `$FRESHET_ARTIFACTS` names; None where it is not set."""
    return os.environ.get(VARIABLE, "").strip() or None


def download(mirror: str, coordinate: str, folder: Path) -> Path:
    """Fetch the jar of a coordinate (group:name:version) from a mirror into a folder, and return its path.

    Raises: UsageError where the mirror does not answer, or has no such jar.
    """
    group, name, version = coordinate.split(":")
    file_name = f"{name}-{version}.jar"
    places = [f"{group.replace('.', '/')}/{name}/{version}/{file_name}", file_name]
    target = folder / file_name
    if mirror.startswith(_WEB):
        found = any(_get(mirror, place, target) for place in places)
    else:
        found = any(_copy(mirror, place, target) for place in places)
    if not found:
        msg = f"{shown(mirror)}: has no {coordinate}; put {places[0]} or {places[1]} there, or unset {VARIABLE}"
        raise UsageError(msg)
    return target


def shown(mirror: str) -> str:
    """Return the setting as people write it, without a name and password in it."""
    if mirror.startswith(_WEB):
        parts = urlsplit(mirror)
        mirror = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return f"{VARIABLE}={mirror}"


def _copy(mirror: str, place: str, target: Path) -> bool:
    root = Path(mirror.removeprefix("file://"))
    if not root.is_dir():
        msg = f"{shown(mirror)}: there is no such folder; give a folder or an http(s):// address that has the jars"
        raise UsageError(msg)
    try:
        shutil.copyfile(root / place, target)
    except FileNotFoundError:
        return False
    except OSError as error:
        msg = f"{shown(mirror)}: {place} can't be read ({error.strerror}); make it readable, or unset {VARIABLE}"
        raise UsageError(msg) from None
    return True


def _get(mirror: str, place: str, target: Path) -> bool:
    import httpx

    try:
        with httpx.stream("GET", f"{mirror.rstrip('/')}/{place}", timeout=_TIMEOUT_S, follow_redirects=True) as answer:
            if answer.status_code == httpx.codes.NOT_FOUND:
                return False
            if not answer.is_success:
                msg = (
                    f"{shown(mirror)}: answers {answer.status_code} to {place}; check the address and the right to "
                    "read there"
                )
                raise UsageError(msg)
            with target.open("wb") as file:
                for chunk in answer.iter_bytes():
                    file.write(chunk)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
        msg = f"{shown(mirror)}: can't be reached ({why}); check the address and the network, or unset {VARIABLE}"
        raise UsageError(msg) from None
    return True

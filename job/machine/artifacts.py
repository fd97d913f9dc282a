"""Java artifacts that no Python package contains: downloaded at first use, checked by SHA-256.

They come from Maven, or from the mirror that `$FRESHET_ARTIFACTS` names.
`artifacts.toml` beside this module pins them. scripts/tools/pin_artifacts.py resolves the roots again and rewrites it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from freshet.errors import FreshetError
from freshet.job.errors import JobFailed, UsageError
from freshet.job.machine.java import flink_home
from freshet.kernels.user_cache import CACHE_VARIABLE, user_cache
from freshet.log_lines import log

MIRROR = "FRESHET_ARTIFACTS"
_MIRROR_S = 30.0
_WEB = ("http://", "https://")


def given_mirror() -> str | None:
    """Return what `$FRESHET_ARTIFACTS` names; None where it is not set."""
    return os.environ.get(MIRROR, "").strip() or None


def download_from_mirror(mirror: str, coordinate: str, folder: Path) -> Path:
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
        msg = f"{shown(mirror)}: has no {coordinate}; put {places[0]} or {places[1]} there, or unset {MIRROR}"
        raise UsageError(msg)
    return target


def shown(mirror: str) -> str:
    """Return the setting as people write it, without a name and password in it."""
    if mirror.startswith(_WEB):
        parts = urlsplit(mirror)
        mirror = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return f"{MIRROR}={mirror}"


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
        msg = f"{shown(mirror)}: {place} can't be read ({error.strerror}); make it readable, or unset {MIRROR}"
        raise UsageError(msg) from None
    return True


def _get(mirror: str, place: str, target: Path) -> bool:
    import httpx

    try:
        with httpx.stream("GET", f"{mirror.rstrip('/')}/{place}", timeout=_MIRROR_S, follow_redirects=True) as answer:
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
        msg = f"{shown(mirror)}: can't be reached ({why}); check the address and the network, or unset {MIRROR}"
        raise UsageError(msg) from None
    return True


PINS = Path(__file__).with_name("artifacts.toml")
# The sets: Flink's Kafka connector and its codec; the connector for logins by tokens; Amazon's login module for that;
# Apache Kafka itself; Flink's plugin for S3.
CONNECTOR, TOKENS, IAM, BROKER, S3 = "connector", "tokens", "iam", "broker", "s3"
_FETCHERS = 8
_TIMEOUT_S = 30.0
PLUGINS = "FLINK_PLUGINS_DIR"  # by which every Java process of Flink finds the folder
_S3 = "s3-fs-hadoop"


class ArtifactError(JobFailed):
    """A Java artifact can't be had; the message says which, why, and what to do."""


class Artifact(NamedTuple):
    """One jar: its Maven coordinate (group:name:version, and a classifier if it has one) and its content."""

    coordinate: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name that the jar has at Maven."""
        return f"{'-'.join(self.coordinate.split(':')[1:])}.jar"


Download = Callable[[str, Path], Path]


"""Fetches the jar of a coordinate into a folder (new and empty) and returns its path."""


def cache_folder() -> Path:
    """Return the folder of fetched jars: `$FRESHET_CACHE`, else the user's cache folder."""
    return user_cache().absolute() / "jars"


def read_pins(name: str) -> tuple[list[str], list[Artifact]]:
    """Return the roots and the jars of a set of the pin file."""
    with PINS.open("rb") as file:
        section = tomllib.load(file)[name]
    return section["roots"], [Artifact(coordinate, digest) for coordinate, digest in section["jars"].items()]


def connector_jars() -> list[Path]:
    """Return Flink's Kafka connector and the codec that neither it nor Flink has (zstd), fetched if they never were.

    Raises: ArtifactError when they can't be fetched, or are not what the pin file says.
    """
    return fetch(read_pins(CONNECTOR)[1])


def token_connector_jars(iam: bool) -> list[Path]:
    """Return Flink's Kafka connector with Kafka's own client, for logins by tokens; `iam`: and Amazon's login module.

    The client in the connector of `connector_jars` can't read the answer of a token endpoint, for want of a library,
    and its packages have names that Amazon's module does not know.
    Raises: ArtifactError, as `connector_jars`.
    """
    return fetch([jar for name in (TOKENS, *([IAM] if iam else [])) for jar in read_pins(name)[1]])


def cached_jars(name: str) -> list[Path]:
    """Return the jars of a set that are in the cache, without a look at the network."""
    pinned = {cache_folder() / artifact.file_name: artifact for artifact in read_pins(name)[1]}
    return [path for path, artifact in pinned.items() if _is_whole(path, artifact)]


def s3_jars() -> list[Path]:
    """Return Flink's plugin for stores that speak S3, fetched if it never was.

    Raises: ArtifactError, as `connector_jars`.
    """
    return fetch(read_pins(S3)[1])


def broker_jars() -> list[Path]:
    """Return the jars of Apache Kafka, fetched now if they never were.

    Raises: ArtifactError, as `connector_jars`.
    """
    return fetch(read_pins(BROKER)[1])


def fetch(artifacts: Sequence[Artifact], download: Download | None = None) -> list[Path]:
    """Return the paths of the artifacts in the cache, each with the pinned content; fetch those that are not there.

    A file appears in the cache whole or not at all, so several processes may fetch at once.
    Raises: ArtifactError; UsageError where `$FRESHET_ARTIFACTS` names a mirror that can't be used.
    """
    folder = cache_folder()
    missing = [artifact for artifact in artifacts if not _is_whole(folder / artifact.file_name, artifact)]
    if missing:
        what = missing[0].coordinate + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
        given = given_mirror()
        where = shown(given) if given else "Maven"
        log(f"fetching {what} from {where} (once)")
        _make_folder(folder)
        download = download or (partial(download_from_mirror, given) if given else maven_download)
        with ThreadPoolExecutor(_FETCHERS) as pool:
            list(pool.map(lambda artifact: _fetch_one(artifact, folder, download, where), missing))
    return [folder / artifact.file_name for artifact in artifacts]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def maven_download(coordinate: str, folder: Path) -> Path:
    """Fetch a jar through jgo: from the local Maven repository where it is there, else from Maven Central."""
    from jgo.constants import MAVEN_CENTRAL_URL, default_maven_repo
    from jgo.maven import MavenContext

    group, name, version, *classifier = coordinate.split(":")
    context = MavenContext(
        repo_cache=folder,
        local_repos=[default_maven_repo()],
        remote_repos={"central": MAVEN_CENTRAL_URL},
        timeout=_TIMEOUT_S,
    )
    return Path(context.project(group, name).at_version(version).artifact(*classifier).resolve())


def _is_whole(path: Path, artifact: Artifact) -> bool:
    try:
        return sha256(path) == artifact.sha256
    except OSError:
        return False


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder}: can't be made ({error.strerror}); set {CACHE_VARIABLE} to a folder that you can write to"
        raise ArtifactError(msg) from None


def _fetch_one(artifact: Artifact, folder: Path, download: Download, where: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        try:
            got = download(artifact.coordinate, Path(scratch))
        except FreshetError:
            raise
        except Exception as error:  # whatever the network, jgo or its HTTP client raise
            raise _unreachable(artifact, folder, error) from error
        found = sha256(got)
        if found != artifact.sha256:
            msg = (
                f"{artifact.coordinate}: got a file with the SHA-256 {found}, expected {artifact.sha256}; it was not "
                "used. "
            )
            if given_mirror():
                raise UsageError(msg + f"{where} has another file by that name: put the one of Maven Central there")
            raise ArtifactError(
                msg + "Something between here and Maven Central changes files, or the copy in ~/.m2 is broken"
            )
        partial = Path(scratch) / "whole.jar"
        shutil.copyfile(got, partial)
        partial.replace(folder / artifact.file_name)


def _unreachable(artifact: Artifact, folder: Path, error: Exception) -> ArtifactError:
    causes = [error]
    while causes[-1].__cause__ or causes[-1].__context__:
        causes.append(causes[-1].__cause__ or causes[-1].__context__)  # type: ignore[arg-type]
    return ArtifactError(
        f"{artifact.coordinate} can't be fetched from Maven ({type(error).__name__}: {causes[-1]}). With a proxy, set "
        f"HTTPS_PROXY; with a mirror, set {MIRROR}; without a network, copy {artifact.file_name} from a "
        f"machine that has it (its folder ~/.cache/freshet/jars) to {folder}"
    )


def make_plugins(folder: Path, s3_jars: Sequence[Path]) -> None:
    """Make the folder of links; `s3_jars`: the plugin for S3, if any.

    A plugin has a folder and classes of its own. On the class path, those for S3 would meet other versions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    carried = [path for path in (flink_home() / "plugins").iterdir() if path.is_dir()]
    for path in carried:
        (folder / path.name).symlink_to(path)
    if s3_jars:
        (folder / _S3).mkdir()
    for jar in s3_jars:
        (folder / _S3 / jar.name).symlink_to(jar)

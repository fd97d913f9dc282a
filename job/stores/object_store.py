"""An object store as Python sees it: the same places, endpoint and credentials as Flink's plugin for S3 has.

Flink reads and writes checkpoints itself. Commands look at them before Flink runs, or where it does not run any more.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.stores.plugins import is_on_s3

_PIECE_BYTES = 8 << 20  # of what is written
_CONNECT_S, _REQUEST_S, _TRIES = 5.0, 30.0, 3
# Without one, a client looks for the region of the machine that it runs on, for seconds.
_REGION = "us-east-1"
# What Flink's plugin takes for each argument of Arrow's client; without any, both go by the environment (AWS_...).
_NAMES = {
    "access_key": ("s3.access-key", "s3.access.key"),
    "secret_key": ("s3.secret-key", "s3.secret.key"),
    "session_token": ("s3.session-token", "s3.session.token"),
    "endpoint_override": ("s3.endpoint",),
    "region": ("s3.endpoint.region", "s3.region"),
}


class StoreError(JobFailed):
    """A store can't be looked into; the message says which, and why."""


class NoBucketError(StoreError):
    """The bucket of a place does not exist."""


class ObjectStore:
    """The files below a URI of a store, by Arrow's client.

    Raises: StoreError from every method where the store does not answer as it should; NoBucketError where nothing is
    found because there is no bucket.
    """

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        """Connect to the store of a URI; `options` are Flink's, with the secrets in them.

        Raises: StoreError for a store that Python has no client for.
        """
        if not is_on_s3(uri):
            msg = f"{uri}: only Flink can look into this store"
            raise StoreError(msg)
        self._uri = uri.rstrip("/")
        self._scheme, _, self._root = self._uri.partition("://")
        self._files = _client(options)

    def uri_of(self, path: str) -> str:
        """Return the URI of a path, which begins with its bucket."""
        return f"{self._scheme}://{path}"

    @property
    def root(self) -> str:
        """The path of the URI."""
        return self._root

    def expect_bucket(self) -> None:
        """Check that the bucket exists.

        Raises: NoBucketError if it does not; StoreError where nobody can tell.
        """
        from pyarrow.fs import FileType

        bucket = self._root.partition("/")[0]
        if self._call(self._files.get_file_info, bucket).type == FileType.NotFound:
            msg = f"{self._uri}: the store has no bucket {bucket}; make it, or correct the name"
            raise NoBucketError(msg)

    def folders(self, path: str) -> list[str]:
        """Return the paths of the folders in a folder; none where it is not there."""
        from pyarrow.fs import FileType

        return [one.path for one in self._infos(path) if one.type == FileType.Directory]

    def written_s(self, paths: Sequence[str]) -> dict[str, float]:
        """Return when these files were written (seconds since 1970), of those that are there and not empty."""
        from pyarrow.fs import FileType

        infos = self._call(self._files.get_file_info, list(paths)) if paths else []
        return {one.path: float(one.mtime_ns / 1e9) for one in infos if one.type == FileType.File and one.size}

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the sizes of these files, of those that are there."""
        from pyarrow.fs import FileType

        infos = self._call(self._files.get_file_info, list(paths))
        return {one.path: int(one.size) for one in infos if one.type == FileType.File}

    def files(self, path: str) -> dict[str, tuple[int, int]]:
        """Return all files below a folder, with their sizes and when they were written (in ns)."""
        from pyarrow.fs import FileType

        infos = self._infos(path, recursive=True)
        found = {one.path: (int(one.size), int(one.mtime_ns)) for one in infos if one.type == FileType.File}
        return dict(sorted(found.items()))

    def get_file(self, path: str, target: Path) -> None:
        """Read a file into a new one of this machine."""
        source = self._call(self._files.open_input_stream, path)
        with source, target.open("xb") as file:
            while piece := self._call(source.read, _PIECE_BYTES):
                file.write(piece)

    def put_file(self, source: Path, path: str) -> None:
        """Write a file of this machine."""
        self._call(self._write, source.open("rb"), path)

    def put_bytes(self, data: bytes, path: str) -> None:
        """Write a file with this content."""
        self._call(self._write, BytesIO(data), path)

    def _write(self, source: BinaryIO, path: str) -> None:
        with source, self._files.open_output_stream(path) as target:
            shutil.copyfileobj(source, target, _PIECE_BYTES)

    def remove(self, path: str) -> None:
        """Remove a folder with all that is in it."""
        self._call(self._files.delete_dir, path)

    def _infos(self, path: str, *, recursive: bool = False) -> list[Any]:
        from pyarrow.fs import FileSelector

        selector = self._call(partial(FileSelector, allow_not_found=True, recursive=recursive), path)
        found = list(self._call(self._files.get_file_info, selector))
        if not found:
            self.expect_bucket()
        return found

    def _call(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except (OSError, ValueError) as error:  # ValueError: a path that Arrow does not take
            msg = f"{self._uri}: {one_line(str(error))}"
            raise StoreError(msg) from error


def refuse_missing_buckets(places: Mapping[str, str | None], options: Mapping[str, str]) -> None:
    """Check that the buckets of these places exist, each by the flag that names it; only those on S3 are looked at.

    `options` are Flink's, with the secrets in them. A line says where nobody can tell.
    Raises: UsageError naming the flag and the bucket.
    """
    for flag, place in places.items():
        if place is None or not is_on_s3(place):
            continue
        try:
            ObjectStore(place, options).expect_bucket()
        except NoBucketError as error:
            msg = f"{flag} {error}"
            raise UsageError(msg) from None
        except StoreError as error:
            say(f"{flag} {error}; whether the bucket exists is not known", "warning")


def _client(options: Mapping[str, str]) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    given = {name: next((options[key] for key in keys if key in options), None) for name, keys in _NAMES.items()}
    found = {name: value for name, value in given.items() if value}
    scheme, sign, host = found.get("endpoint_override", "").partition("://")
    if sign:
        found |= {"scheme": scheme, "endpoint_override": host.rstrip("/")}
    if "endpoint_override" in found:
        found.setdefault("region", _REGION)
    retries = AwsStandardS3RetryStrategy(max_attempts=_TRIES)
    try:
        return S3FileSystem(**found, connect_timeout=_CONNECT_S, request_timeout=_REQUEST_S, retry_strategy=retries)
    except (OSError, ValueError) as error:
        msg = f"s3: {one_line(str(error))}"
        raise StoreError(msg) from None

"""The kinds of vertices whose embeddings a job writes, as its folder records them, and the choice of one (`--kind`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from freshet.files.json_file import read_json
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.kind_names import written_kind
from freshet.operators.output_folders import LogFolders


@dataclass(frozen=True, kw_only=True)
class WrittenRows:
    """The rows that a job writes; `returned` and `inner_widths` are those of its settings."""

    returned: list[str] = field(default_factory=list)
    inner_widths: dict[str, Annotated[int, Field(ge=1)]] = field(default_factory=dict)

    @property
    def is_inner(self) -> bool:
        """True if embeddings are computed as they are read."""
        return bool(self.inner_widths)

    @property
    def kinds(self) -> list[str]:
        """The kinds of vertices whose rows are written, also where it is one; none without kinds."""
        return [*filter(None, self.inner_widths)] if self.is_inner else self.returned

    @property
    def every(self) -> list[str | None]:
        """The kinds as `--kind` names them, None of a job that writes one log."""
        return [*self.kinds] if len(self.kinds) > 1 else [None]


@dataclass(frozen=True)
class _Saved:
    settings: WrittenRows


class KindChoiceError(UsageError):
    """A kind of vertices is to be named, or is none that the model returns; `returned`: those that it returns."""

    def __init__(self, message: str, returned: Sequence[str]) -> None:
        super().__init__(message)
        self.named, self.returned = "--kind", tuple(returned)


def folder_name(returned: Sequence[str], kind: str | None, where: Path | str) -> str:
    """Return the name of the folders of the kind that is asked for; empty where the model returns one kind alone.

    Raises: KindChoiceError where several are returned and none is named, or another one.
    """
    if kind is None:
        if len(returned) <= 1:
            return ""
        names = ", ".join(returned)
        msg = f"{where}: the model returns {len(returned)} kinds of vertices ({names}); name one of them by --kind"
        raise KindChoiceError(msg, returned)
    if not returned:
        msg = f"--kind {kind}: the embeddings of {where} are of one kind, which has no name; leave --kind out"
        raise KindChoiceError(msg, returned)
    kind = next((one for one in returned if written_kind(one) == written_kind(kind)), kind)  # a folder's may be cut
    if kind not in returned:
        msg = f"--kind {kind}: the model of {where} returns {', '.join(returned)}; name one of these"
        raise KindChoiceError(msg, returned)
    return kind if len(returned) > 1 else ""


def refuse_alike(out: Path, returned: Sequence[str]) -> None:
    """Check that the folders of the kinds are different, also on a file system that ignores case.

    Raises: UsageError if the file system of `out` does, and two kinds differ in case alone.
    """
    by_folder: dict[str, str] = {}
    for kind in returned:
        other = by_folder.setdefault(written_kind(kind).lower(), kind)
        if other != kind and ignores_case(out):
            msg = (
                f"--out {out}: its file system does not distinguish capital letters, so the kinds {other!r} and "
                f"{kind!r} would have one folder; give a folder on another disk"
            )
            raise UsageError(msg)


def ignores_case(out: Path) -> bool:
    """Return whether names that differ in case alone are one name in the file system of a folder."""
    probe = out / ".freshet_capitals"
    probe.touch()
    try:
        return (out / probe.name.upper()).exists()
    finally:
        probe.unlink()


def named_kinds(given: str | None, returned: Sequence[str]) -> list[str | None]:
    """Return the kinds that `--kind` names, such as `user,item`; [None] without it."""
    if given is None or given in returned:
        return [given]
    return list(dict.fromkeys(one.strip() for one in given.split(",")))


def written_of(out: Path) -> WrittenRows:
    """Return which rows a job writes, as its folder says.

    Raises: DamagedFileError.
    """
    found = read_json(out / layout.SAVED_JOB, _Saved, "no other file has all of it: put it back from a copy")
    return WrittenRows() if found is None else found.settings


def returned_of(out: Path) -> list[str]:
    """Return the kinds of vertices that the model of a job returns, also where it is one; none without kinds.

    Raises: DamagedFileError.
    """
    return written_of(out).returned


def refuse_inner(out: Path, what: str) -> None:
    """Refuse what reads embeddings in the folder of a job that writes rows of inner layers in their place.

    Raises: UsageError, DamagedFileError.
    """
    if written_of(out).is_inner:
        msg = (
            f"{what}: the embeddings of the job in {out} are computed as they are read (--embeddings asked), so its "
            f"folder has none; ask a server of its tables alone: `freshet serve --tables {out / layout.TABLES}`"
        )
        raise UsageError(msg)


def logs_of(out: Path) -> list[LogFolders]:
    """Return the change logs of a job: one, or one for each kind where its model returns several.

    Raises: DamagedFileError.
    """
    return [LogFolders(out, kind or "") for kind in written_of(out).every]

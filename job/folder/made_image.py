"""The base image in a snapshot folder that `freshet embed` wrote: what it was made with, and a job's start from it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.options.run_config import RunConfig, with_value
from freshet.kernels.processor import named
from freshet.partitioner.config import PartitionerConfig
from freshet.state.checksums.files import FileChecksums
from freshet.state.image import IMAGE_FORMAT, image_id

MADE = f"{layout.IMAGE}/made.json"
# The options of a run that decide an image; `id_kind` is the snapshot's.
_OPTIONS = ("strategy", "snapshot_placement", "hybrid_threshold", "hdrf_lambda", "hdrf_epsilon", "undirected")
_NOT_OF_IMAGES = "hash_seed", "ts_jump_ms"
_ADVICE = "embed the snapshot again"
_BESIDE = (layout.EMBEDDINGS, layout.EPOCHS)
_FOLDERS = (layout.IMAGE, *_BESIDE)


class _Made(TypedDict):
    format: int
    parts: int
    partitioning: PartitionerConfig
    processor: dict[str, str]
    vertices: int
    images: dict[str, str]
    files: dict[str, tuple[int, str]]


@dataclass(frozen=True)
class MadeImage:
    """An image in a snapshot's folder; `images` has the hash of each operator's part, by their folders."""

    folder: Path
    parts: int
    partitioning: PartitionerConfig
    processor: dict[str, str]
    vertices: int
    images: dict[str, str]
    files: FileChecksums
    """Those of `embeddings` and `epochs`."""

    @staticmethod
    def describe(base: Path, parts: int, partitioning: PartitionerConfig, vertices: int, processor: Any) -> None:
        """Write what a finished image in the folder `base` was made with, and checksums of what lies beside it."""
        images = {path.parent.name: image_id(path.parent).decode() for path in sorted(base.glob("*/image.json"))}
        told_of = {
            "format": IMAGE_FORMAT,
            "parts": parts,
            "partitioning": asdict(partitioning),
            "processor": dict(processor),
            "vertices": vertices,
            "images": images,
            "files": FileChecksums.of(base.parent, _names(base.parent, _BESIDE)).as_dict(),
        }
        write_json(base / Path(MADE).name, told_of)

    @staticmethod
    def of(snapshot: Path) -> MadeImage | None:
        """The image in a snapshot's folder; None where there is none.

        Raises: UsageError for one of another format; DamagedFileError.
        """
        path = snapshot / MADE
        told_format = read_json(path, dict[str, Any], _ADVICE)
        if told_format is None:
            return None
        if told_format.get("format") != IMAGE_FORMAT:
            msg = f"{path}: of another version of Freshet; {_ADVICE}"
            raise UsageError(msg)
        content: dict[str, Any] = dict(read_json(path, _Made, _ADVICE) or {})
        del content["format"]
        content["files"] = FileChecksums.from_dict(content["files"])
        return MadeImage(snapshot, **content)

    def options(self) -> dict[str, Any]:
        """The options that decide it, as those of a run, with their values."""
        return {"parts": self.parts} | {name: getattr(self.partitioning, name) for name in _OPTIONS}

    def check(self, parts: int, partitioning: PartitionerConfig, processor: Any) -> None:
        """Check that a job with these options would have made the same image; its hash seed is the image's.

        Raises: UsageError naming the first option that would not.
        """
        differing = [("parts", self.parts, parts)] if parts != self.parts else []
        ours, theirs = asdict(partitioning), asdict(self.partitioning)
        for name, value in theirs.items():
            if name not in _NOT_OF_IMAGES and ours[name] != value:
                differing.append((name, value, ours[name]))
        for name, made, given in differing:
            had = _option(name, made)
            msg = (
                f"--snapshot {self.folder}: its state was made with {had}, this job has {_option(name, given)}; give "
                f"{had}, or the snapshot that was embedded"
            )
            raise UsageError(msg)
        if processor and dict(processor) != self.processor:
            msg = (
                f"--snapshot {self.folder}: its state was computed with {named(self.processor)}, this process computes "
                f"with {named(processor)}; embed the snapshot here, or give the one that was embedded"
            )
            raise UsageError(msg)

    def start(self, out: Path) -> None:
        """Put the image and the change log's epoch 0 into the folder of a new job, by links where the disk allows it.

        Raises: DamagedFileError when it is not what was written.
        """
        for place, expected in self.images.items():
            if image_id(self.folder / layout.IMAGE / place).decode() != expected:
                msg = f"{self.folder / layout.IMAGE / place}: is not the image that was made; embed the snapshot again"
                raise DamagedFileError(msg)
        if damage := self.files.damage(self.folder, everything_in=_BESIDE):
            msg = f"--snapshot {self.folder}: damaged: {damage}; embed the snapshot again"
            raise DamagedFileError(msg)
        for name in _names(self.folder, _FOLDERS):
            source = self.folder / name
            target = out / source.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            try:
                os.link(source, target)
            except OSError:
                shutil.copyfile(source, target)


def _names(folder: Path, below: Iterable[str]) -> list[str]:
    """The files of a snapshot that a job gets, by their names below the snapshot's folder."""
    paths = [path for name in below for path in sorted((folder / name).rglob("*"))]
    names = [path.relative_to(folder).as_posix() for path in paths if path.is_file() and path.name[0] not in "._"]
    return [name for name in names if name != MADE]


def in_words(options: dict[str, Any]) -> str:
    """Options of a run as they are given on the command line."""
    return ", ".join(_option(name, value) for name, value in options.items())


def _option(name: str, value: Any) -> str:
    if name == "edge_keys":
        return f"{value} keys of edges" if value else "no keys of edges"
    return with_value(name, value) if name in RunConfig.model_fields else f"{name} {value}"

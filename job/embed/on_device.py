"""Embeddings by torch on a device, in chunks: the graph is placed as for a stream, then come the layers of the model.

Rows lie in files by slot, those of each kind and each name that was kept. A segment of the model (a conv layer and the
layers of rows behind it) is a step for each kind, and a finished step is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freshet.extras import EXTRAS, need
from freshet.gnn.any_plan import AnyPlan, returned_of
from freshet.gnn.declarations import OwnLayer
from freshet.gnn.kinds.model import KindsModel, load_any_model
from freshet.gnn.module_answers import convs_of
from freshet.gnn.rows.jumps import CURRENT
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.units import format_size, readable
from freshet.operators.dataflow import FEATURES, PARTITIONER, SINK, Place
from freshet.operators.embed.files import EmbedError, FinishedSteps, full_disk
from freshet.operators.factory import dataflow_of, make_core
from freshet.operators.initial.graph_events import read_features
from freshet.operators.initial.image import Blocks, ImageReport, InitialImage
from freshet.operators.initial.layers import EVENTS, rows_at_once, take_features
from freshet.operators.initial.sent_rows import SlotRows, in_chunks, rows_path
from freshet.operators.initial.topology import read_topology
from freshet.operators.settings import Settings
from freshet.operators.storage.epoch_topology import EpochTopology
from freshet.operators.storage.features import FeatureStorage
from freshet.state.block_columns import ADDED_EDGES, kind_prefix, relation_prefix
from freshet.state.codec import views
from freshet.state.image import write_image
from freshet.state.memory.mapped_file import mapped

if TYPE_CHECKING:
    from freshet.gnn.torch_modules.chunked.costs import ChunkCosts
    from freshet.gnn.torch_modules.chunked.device import PassFigures
    from freshet.gnn.torch_modules.chunked.device_pass import DevicePass
    from freshet.gnn.torch_modules.chunked.in_edges import EdgesByTarget

CPU, CUDA, AUTO = DEVICES = ("cpu", "cuda", "auto")
_MIB, _FEATURES = 1 << 20, "device-features"


class WantedDevice(NamedTuple):
    """The kind of device on which torch computes; `may_leave`: the engine does where its memory is too little."""

    kind: str
    memory: int | None
    may_leave: bool = False


def wanted_device(model: Path, device: str, memory: int | None) -> WantedDevice | None:
    """Return where torch computes the layers; None where the engine does.

    Raises: UsageError for CUDA that is not there, and a layer without a form in torch; MissingExtraError without torch.
    """
    if device == CPU and memory is None:
        return None
    option = "--device-memory" if device == CPU else f"--device {device}"
    own = _own_layer(model)
    if device == AUTO and (why := _why_not_cuda(own)):
        by_torch = memory is not None and own is None and not _missing()
        say(f"{option}: {why}: cpu, {'by torch' if by_torch else 'by the engine'}")
        return WantedDevice(CPU, memory) if by_torch else None
    need("torch", option)
    if own is not None:
        msg = f"{option}: --model {model}: {own}; leave {option} out, and the engine computes it"
        raise UsageError(msg)
    if device == CUDA and (why := _why_not_cuda(None)):
        msg = f"{option}: {why}; install torch for the CUDA of this machine, or give --device cpu"
        raise UsageError(msg)
    if device == AUTO:
        say(f"{option}: cuda")
    return WantedDevice(CPU if device == CPU else CUDA, memory, may_leave=device == AUTO)


def _why_not_cuda(own: str | None) -> str | None:
    if missing := _missing():
        return f"{missing[0]} is not installed"
    from freshet.gnn.torch_modules.chunked.device import why_no_cuda

    return why_no_cuda() or own


def _missing() -> list[str]:
    return [name for name in EXTRAS["torch"] if find_spec(name) is None]


def _own_layer(model: Path) -> str | None:
    """Return in words which layer is a `freshet.Layer`; None where there is none."""
    found = next((one for one in convs_of(load_any_model(model)) if isinstance(one, OwnLayer)), None)
    return None if found is None else f"{found.code} is a freshet.Layer, whose functions are numpy and not torch"


class _StoredRows(NamedTuple):
    """Columns of a file of rows by slot.

    Shapes: the file (vertices, width) float32
    """

    path: Path
    vertices: int
    width: int
    columns: slice

    def rows(self) -> np.ndarray:
        """Return the columns, mapped.

        Raises: EmbedError for a file that is not there.
        """
        if not (self.vertices and self.width):
            return np.empty((self.vertices, self.width), np.float32)
        if not self.path.is_file():
            msg = f"{self.path}: is missing; remove the folder above it and embed again"
            raise EmbedError(msg)
        return mapped(self.path, "f4", self.width)[:, self.columns]


_Stored = dict[str, dict[str, _StoredRows]]
"""Rows by kind and name."""


class DeviceEmbedding:
    """Embeds a snapshot by torch, into the folder of `image`, which places the graph and writes the embeddings' files.

    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file; UsageError for a device with too
    little memory.
    """

    def __init__(
        self,
        image: InitialImage,
        settings: Settings,
        plan: AnyPlan,
        work: Path,
        memory: int,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._image, self._settings, self._plan, self._work = image, settings, plan, work
        self._memory, self._progress = memory, progress
        self._model = load_any_model(settings.model)

    def run(self, blocks: Blocks, wanted: WantedDevice) -> tuple[ImageReport, dict[str, Any]]:
        """Run the remaining steps; returns what it came to, and the figures of the device for the JSON line.

        On the processor it ends in `InitialImage.run`, if the device may be left.
        """
        from freshet.gnn.torch_modules.chunked.device import PassFigures, find_device
        from freshet.gnn.torch_modules.chunked.device_pass import DevicePass, plan_device_pass

        plan, found = plan_device_pass(self._model, self._attr_widths()), find_device(wanted.kind, wanted.memory)
        resumed = self._image.begin()
        self._image.do(PARTITIONER, blocks)
        topology = EpochTopology([views(read_topology(self._work, 0))])
        edges = self._edges(topology)
        if (least := plan.least(edges)) > found.memory:
            words = _too_little(found.memory, least, wanted)
            if not wanted.may_leave:
                raise UsageError(words)
            say(f"--device auto: {words}: cpu, by the engine")
            return self._image.run(blocks), {"device": CPU}
        rows, vertices = self._features(topology)
        device, total = DevicePass(plan, found, edges), PassFigures()
        for some in plan.segments:
            before = {kind: one[CURRENT] for kind, one in rows.items() if CURRENT in one}
            made = [self._segment(one, device, rows, vertices, total) for one in some]
            for kind in rows if some and some[0].segment.conv is not None else ():
                rows[kind].pop(CURRENT, None)
            for one, new in zip(some, made, strict=True):
                rows[one.segment.kind] |= new
            self._forget(before, rows)
        self._give(rows)
        self._image.do(f"{SINK}-0", blocks)
        placed, figures = FinishedSteps(self._work).get(PARTITIONER), total.record()
        say(
            f"{found.name}: {figures['rows_s']:,} rows/s, {figures['transfer_share']:.0%} of the time copying, "
            f"{figures['compute_share']:.0%} computing; {readable(total.bytes_copied)} copied, "
            f"{readable(total.bytes_kept)} of rows kept from chunk to chunk"
        )
        more = {"device": found.name, "device_memory": found.memory, **figures}
        return ImageReport(**placed, resumed=resumed), more

    def _attr_widths(self) -> dict[int, int]:
        if isinstance(self._model, KindsModel):
            return {number: one.edge_features for number, one in enumerate(self._model.relations)}
        return {0: self._model.edge_features}

    def _edges(self, topology: EpochTopology) -> dict[int, EdgesByTarget]:
        """Return the edges of each relation by target."""
        from freshet.gnn.torch_modules.chunked.in_edges import EdgesByTarget
        from freshet.gnn.torch_modules.chunked.segment import kinds_of

        names, found, kinds = ADDED_EDGES.names, {}, kinds_of(self._model)
        relations = self._model.relations if isinstance(self._model, KindsModel) else [None]
        for (number, width), one in zip(self._attr_widths().items(), relations, strict=True):
            self._progress(f"sorting edges by target, relation {number + 1} of {len(relations)}")
            section = topology.of(relation_prefix(None if one is None else number))
            targets = topology.of(kind_prefix(None if one is None else kinds.index(one.target))).get("m_slot")
            src, dst, carried = (section.get(name) for name in names[:3])
            attr = section.columns.get(ADDED_EDGES.attr, np.empty((0, width), np.float32))
            if len(attr) != len(src) and width:
                msg = f"relation {number}: {len(attr):,} rows of attributes, expected {len(src):,}"
                raise EmbedError(msg)
            found[number] = EdgesByTarget.of(
                src, dst, len(targets), None if (carried == 1).all() else carried, attr[:, :width] if width else None
            )
        return found

    def _features(self, topology: EpochTopology) -> tuple[_Stored, dict[str, int]]:
        """Return the features of all kinds and their learned rows, in files; and the numbers of vertices."""
        from freshet.gnn.torch_modules.chunked.segment import kinds_of

        journal, features = FinishedSteps(self._work), read_features(self._work / EVENTS, self._plan.features)
        core = make_core(self._settings, self._plan, dataflow_of(self._settings, self._plan)[FEATURES], 0)
        assert isinstance(core, FeatureStorage)
        sums, place, is_done = dict[str, int](), Place(FEATURES, 0), journal.get(_FEATURES) is not None
        image = Path(self._settings.image) / str(place)
        if not is_done:
            core.tables.keep_in(image)
        rows, vertices = _Stored(), dict[str, int]()
        parts = self._model.row_parts() if isinstance(self._model, KindsModel) else {}
        for number, kind in enumerate(kinds_of(self._model)):
            owner, path = core.owners[number], self._work / f"{_FEATURES}-{number}"
            count = vertices[kind] = len(topology.of(core.prefixes[number]).get("m_slot"))
            if not is_done:
                size = rows_at_once(self._memory, 3 * owner.width)
                out, born = (
                    SlotRows(path, count, owner.width),
                    take_features(core, number, features, topology, size),
                )
                for some in in_chunks(born, size):
                    out.put(some, owner.rows(some))
                sums[path.name] = out.finish()
            rows[kind], at = {}, 0
            for name, width in parts.get(kind, {CURRENT: owner.width}).items():
                rows[kind][name] = _StoredRows(path, count, owner.width, slice(at, at + width))
                at += width
        if not is_done:
            write_image(core.tables, image, 0)
            self._image.drop_image(place)
            journal.put(_FEATURES, sums)
        return rows, vertices

    def _segment(
        self, costs: ChunkCosts, device: DevicePass, rows: _Stored, vertices: dict[str, int], total: PassFigures
    ) -> dict[str, _StoredRows]:
        """Make the rows of a segment, unless they are there; returns them by name."""
        segment, journal = costs.segment, FinishedSteps(self._work)
        count, name = vertices[segment.kind], f"device{segment.number}-{list(vertices).index(segment.kind)}"
        found = {
            one: _StoredRows(self._work / f"{name}-{k}", count, width, slice(width))
            for k, (one, width) in enumerate(costs.out.items())
        }
        if journal.get(name) is None:
            out = {one: SlotRows(of.path, count, of.width) for one, of in found.items()}
            given = {kind: {CURRENT: of[CURRENT].rows()} for kind, of in rows.items() if CURRENT in of}
            given.setdefault(segment.kind, {}).update({one: rows[segment.kind][one].rows() for one in segment.reads})
            for kind in segment.source_kinds:
                given.setdefault(kind, {})
            figures = device.run(
                costs, vertices, given,
                lambda one, first, new: out[one].put(slice(first, first + len(new)), new),
                lambda done: self._progress(f"{name}: {done:,} of {count:,} vertices"),
            )  # fmt: skip
            journal.put(name, {found[one].path.name: of.finish() for one, of in out.items()})
            total.add(figures)
        return found

    def _forget(self, before: dict[str, _StoredRows], rows: _Stored) -> None:
        """Remove the rows of a layer that the next one has read."""
        kept = {one.path for of in rows.values() for one in of.values()}
        for one in before.values():
            if one.path not in kept:
                one.path.unlink(missing_ok=True)

    def _give(self, rows: _Stored) -> None:
        """Put the embeddings where the step that writes them reads them."""
        kinds, has_kinds = list(rows), self._plan.features.kinds is not None
        for _, number, _ in returned_of(self._plan):
            path = rows_path(self._work, len(self._plan.layers), 0, number if has_kinds else None)
            path.unlink(missing_ok=True)
            try:
                os.link(rows[kinds[number]][CURRENT].path, path)
            except OSError as error:
                raise full_disk(path, error) from None


def _too_little(memory: int, least: int, wanted: WantedDevice) -> str:
    unit = 1024 if least < _MIB else _MIB
    enough = format_size(-(-least // unit) * unit)
    given = f"--device-memory {format_size(memory)}" if wanted.memory else f"{readable(memory)} of the device"
    more = f"give {enough} or more" if wanted.memory else "take a device with more, or give --device cpu"
    return f"{given}: too little for the vertex with the most in-edges, which needs {enough}; {more}"

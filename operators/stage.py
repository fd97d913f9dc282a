"""One task of an operator, without an engine: a core, the inbox before it, and the sweeps that make it durable.

A sender sends exactly one block per epoch; the stage acts once, when it has the blocks of all its senders, merged by
(kind, flags, source task). So its result does not depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from freshet.operators.control import is_marker
from freshet.operators.core import Core
from freshet.operators.epochs.under_way import UnderWay
from freshet.operators.inbox import INBOX_BYTES, Inbox
from freshet.operators.outcome import Outcome
from freshet.operators.parser.letter_box import LetterBox
from freshet.operators.telemetry.figures import Figures
from freshet.operators.telemetry.level import AnyLevel
from freshet.operators.telemetry.paging import with_paging
from freshet.operators.telemetry.sum_report import SumReport
from freshet.operators.telemetry.traffic import Traffic
from freshet.state.codec import Block, decode, read_header
from freshet.state.entries import Entries


class RunningStage(Protocol):
    """Interface of each task of an operator for a runtime."""

    def close(self) -> None:
        """Finish what it does in the background."""


class RejectingStage(RunningStage, Protocol):
    """A stage that rejects records."""

    dead_letters: LetterBox | None
    """Where they go."""


class KeyedStage(RunningStage, Protocol):
    """A stage with keyed state: `preload` when the operator opens, `restore` when its state can be read."""

    levels: dict[str, AnyLevel]
    """What waits in it."""

    def preload(self) -> None:
        """Load what does not depend on keyed state."""

    def restore(self, *items: Entries) -> None:
        """Load the newest complete cut of these entries, part by part."""

    @property
    def memory_bytes(self) -> int:
        """Bytes held."""

    @property
    def figures(self) -> Figures:
        """Figures for metrics."""


class EpochStage(KeyedStage, Protocol):
    """A Storage, a Tail or the Sink: offered blocks until an epoch is complete."""

    def offer(self, block: Block | bytes) -> list[Block | bytes] | None:
        """The blocks of the epoch that this one completes."""

    def act(self, blocks: list[Block | bytes]) -> Outcome:
        """Compute the epoch of these blocks."""

    @property
    def sums(self) -> SumReport | None:
        """Report on its sums, if it keeps any."""

    @property
    def epoch(self) -> int:
        """The newest one that it has computed."""


class SendingStage(EpochStage, Protocol):
    """A Sink that writes a topic."""

    @property
    def traffic(self) -> Traffic:
        """Messages that it has sent."""


class SealingStage(KeyedStage, RejectingStage, Protocol):
    """The Partitioner: begins an attempt, then seals epochs of the events that it receives."""

    @property
    def waiting(self) -> bool:
        """True if there is anything that a tick could seal or look for."""

    @property
    def holds_back(self) -> bool:
        """True if events wait until earlier epochs are finished, so that a tick should come soon."""

    def is_due(self, now_ms: float) -> bool:
        """Return whether a tick would find anything to do now."""

    def watch(self, under_way: UnderWay) -> None:
        """Set the object that reports the epochs under way, before `begin`."""

    def begin(self, now_ms: float) -> Iterable[Outcome]:
        """Replay what was sealed before."""

    def receive(self, block: bytes, now_ms: float) -> Outcome:
        """Take a block of events."""

    def tick(self, now_ms: float) -> Outcome:
        """Seal by time."""

    def finish(self) -> Outcome:
        """Seal the remaining events when the input has ended."""


class ChunkStage(RejectingStage, Protocol):
    """The Parser of files."""

    def parse(self, number: int) -> list[bytes]:
        """The blocks of events of a chunk."""


class TopicStage(RejectingStage, Protocol):
    """The Parser of a topic."""

    traffic: Traffic
    """Messages that it has taken."""

    def parse(self, batch: bytes) -> list[bytes]:
        """The blocks of events of a batch of messages."""

    def write_status(self) -> None:
        """Write the status, if it is due and behind: in a pause, too."""


class OutOfOrderError(RuntimeError):
    """Blocks came that the stage can't place: a lost or repeated epoch."""


class Stage:
    """One operator's task: `restore`, then `offer` blocks; when an epoch is complete, `act` on it.

    `parts` are the core's, in order, and `images` their base images.
    """

    def __init__(
        self,
        name: str,
        core: Core,
        senders: int,
        images: Sequence[Path | None] | None = None,
        epoch: int = 0,
        inbox_bytes: int = INBOX_BYTES,
        parts: Sequence[int] = (0,),
    ) -> None:
        self.name, self.core, self.parts = name, core, parts
        self.sweeper = core.sweeper(images, epoch)
        self.epoch = epoch
        self.inbox = Inbox(senders, inbox_bytes)
        self.levels: dict[str, AnyLevel] = {**self.inbox.levels, **core.levels}

    def preload(self) -> None:
        """Load what does not depend on keyed state."""
        self.sweeper.preload()

    def restore(self, *items: Entries) -> None:
        """Load the newest complete cut of these entries, part by part; the epochs after it will come again."""
        self.epoch = self.sweeper.restore(*items)
        self.core.after_restore()

    def offer(self, block: Block | bytes) -> list[Block | bytes] | None:
        """Put a block in the inbox; the blocks of its epoch, in canonical order, once all are there.

        Raises:
            OutOfOrderError: the block belongs to an epoch that was passed, or came twice.
        """
        header = block.header if isinstance(block, Block) else read_header(block)
        if header.epoch <= self.epoch or self.inbox.holds(header):
            msg = f"{self.name}: epoch {header.epoch} from part {header.source} came again, at epoch {self.epoch}"
            raise OutOfOrderError(msg)
        return self.inbox.put(header, block)

    def act(self, blocks: list[Block | bytes]) -> Outcome:
        """Compute the epoch of these blocks.

        Raises:
            OutOfOrderError: the epoch is not the next one.
        """
        decoded = [block if isinstance(block, Block) else decode(block) for block in blocks]
        epoch = decoded[0].header.epoch
        if epoch != self.epoch + 1:
            msg = f"{self.name}: epoch {epoch} is complete, but the next one is {self.epoch + 1}"
            raise OutOfOrderError(msg)
        messages = self.core.apply(epoch, decoded)
        self.epoch = epoch
        controls = [block.columns["ctl"] for block in decoded if "ctl" in block.columns]
        changes = self.sweeper.mark(epoch) if any(map(is_marker, controls)) else self.sweeper.step()
        return Outcome(messages, {self.parts[k]: mutations for k, mutations in changes.items()} if changes else {})

    def close(self) -> None:
        """Drop what waits, and let the core finish what it does in the background."""
        self.inbox.close()
        self.sweeper.close()
        self.core.close()

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the core's tables and by the inbox."""
        return self.core.nbytes + self.inbox.nbytes

    @property
    def figures(self) -> Figures:
        """Figures of the core, and of its process's memory for tables."""
        return with_paging(self.core.figures, self.core.pager, self.name)

    @property
    def sums(self) -> SumReport | None:
        """Report on the core's sums, if it keeps any."""
        return self.core.sums

    @property
    def waiting(self) -> int:
        """Blocks in the inbox."""
        return self.inbox.blocks

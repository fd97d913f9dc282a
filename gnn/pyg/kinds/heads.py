"""Heads of the kinds that a module returns: what makes logits of their embeddings, split off its forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.forward.fx import dense_steps
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRows
from freshet.gnn.pyg.steps import Step, head_of

if TYPE_CHECKING:
    from torch.nn import Module

Asked = str | Mapping[str, str] | None


class KindHead(NamedTuple):
    """The head of a kind: the name of the submodule, its steps, and whether the module's rows are its output."""

    name: str
    steps: list[Step]
    is_called: bool


def heads_of(
    module: Module, ops: KindsOperations, results: Sequence[str], kinds: Metadata, asked: Asked
) -> tuple[list[str], dict[int, KindHead | None]]:
    """Return the names of the embeddings in place of those of results, and the heads by kind, in their order.

    Operations of heads, and what nothing else reads, are forgotten. `asked` names one submodule for all returned kinds,
    or one for each; a ModuleDict stands for its part for the kind.
    Raises: ExportError for a head that there is not, and for one that is not the end of what makes the kind's rows.
    """
    named = _named(module, asked, [kinds.names[ops.kind[name]] for name in results])
    embeddings, heads = list[str](), dict[int, KindHead | None]()
    for result in results:
        kind = ops.kind[result]
        heads[kind], name = _split(module, ops, result, named.get(kinds.names[kind]))
        embeddings.append(name)
    ops.keep(embeddings)
    for name in ops.made:
        for kind, head in heads.items():
            if head is not None and head.is_called and _is_within(name, head.name):
                what = f"head={head.name!r} is not the end of what makes rows of {kinds.names[kind]!r}"
                refuse(f"{what}: {name} is read by other layers, too")
    return embeddings, heads


def _named(module: Module, asked: Asked, returned: Sequence[str]) -> dict[str, str]:
    """The names of submodules by kind."""
    if asked is None:
        return {}
    if isinstance(asked, Mapping) and (other := [kind for kind in asked if kind not in returned]):
        refuse(f"head names the kind {other[0]!r}; the module returns {', '.join(map(repr, returned))}")
    by_kind = dict(asked) if isinstance(asked, Mapping) else dict.fromkeys(returned, asked)
    return {kind: _part(module, kind, name) for kind, name in by_kind.items()}


def _part(module: Module, kind: str, name: str) -> str:
    from torch.nn import ModuleDict

    part = head_of(module, name)
    return f"{name}.{kind}" if isinstance(part, ModuleDict) and kind in part else name


def _split(module: Module, ops: KindsOperations, result: str, head: str | None) -> tuple[KindHead | None, str]:
    """Return the head that ends with these rows, and the name of the rows that it reads."""
    if head is None:
        return None, result
    steps, at = list[Step](), result
    while _is_within(at, head):
        op = ops.made[at]
        if not isinstance(op, OnRows):
            refuse(f"{head}: {at} puts rows together or reads neighbours; a head is a straight line of layers of a row")
        steps.append(op.step)
        at = op.rows
    if steps:
        return KindHead(head, steps[::-1], is_called=True), at
    if inside := [name for name in ops.made if _is_within(name, head) and name in ops.needed([result])]:
        refuse(f"head={head!r} is not the end of the module: {result} comes after {inside[0]}")
    part: Any = module.get_submodule(head)
    return KindHead(head, dense_steps(head, part), is_called=False), result


def _is_within(operation: str, head: str) -> bool:
    name = operation.partition(":")[0]
    return name == head or name.startswith(head + ".")

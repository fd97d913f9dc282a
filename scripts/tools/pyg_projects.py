"""Models of public projects with PyTorch Geometric, exported and compared with PyG on a stream.

The table pyg_projects.toml says which, at which commits. Nothing is fetched: `--checkouts` is a folder that has each
repository as OWNER+NAME. What a file imports from elsewhere and does not have here is left out of it; for torch_sparse
stands what tests/support/graphs/sparse_tensors.py has of it.

`why` of an entry says what stands against a model that is refused; `edit` has texts of its script and what to write in
their place, at most ten lines, as the refusal recommends. Such a model is tried again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.graphs.sparse_tensors import stand_in

stand_in()

from scripts.tools.pyg_examples import Outcome, outcomes  # noqa: E402 - PyG looks for torch_sparse as it is imported

TABLE = Path(__file__).with_name("pyg_projects.toml")
UNSEEN = Path(__file__).with_name("pyg_projects_unseen.toml")


def main() -> None:
    """Print a line for each model, and how many there are of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True, help="folder of repositories, OWNER+NAME")
    parser.add_argument("--only", default="", help="those whose script or call has these letters")
    parser.add_argument("--unseen", action="store_true", help="the projects of pyg_projects_unseen.toml instead")
    asked = parser.parse_args()
    found = list[Outcome]()
    for one in outcomes(asked.checkouts, asked.only, UNSEEN if asked.unseen else TABLE):
        found.append(one)
        print(f"{one.script} {one.model}: {_said(one)}", flush=True)
    projects = {one.script.split("/")[0] for one in found}
    taken = [one for one in found if one.taken]
    differ = sum(not one.equal for one in taken)
    print(f"{len(found)} models of {len(projects)} projects: {len(taken)} taken, of which {differ} differ")
    for why, many in Counter(one.why or "no reason noted" for one in found if one.refused).most_common():
        print(f"{many:3} refused: {why}")
    edited = [one.edited for one in found if one.edited is not None]
    print(f"{sum(one.equal for one in edited)} of {len(edited)} that are edited as they recommend are taken and equal")
    sys.exit(differ > 0 or any(one.taken and not one.equal for one in edited))


def _said(one: Outcome) -> str:
    if one.unmade:
        return f"not made here, {one.unmade}"
    if one.refused:
        after = "" if one.edited is None else f"; after its edit {_said(one.edited)}"
        return f"refused, {one.refused.splitlines()[0]}{after}"
    return f"{'equal' if one.equal else 'DIFFERS'}, off by {one.off:.1e} in {one.rows} rows"


if __name__ == "__main__":
    main()

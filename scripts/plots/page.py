"""Pictures of a server's page for docs/guide/pictures: `python scripts/plots/page.py [--seconds 240]`.

Streams 1,000 events a second through a broker into a job of accounts, and then into one of users and items; some
records are bad. After --seconds each page is opened in Chromium: light, dark, and on a phone.
A page that complains, asks another host, or is wider than the phone, ends the script.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.model import save_model
from freshet.job.dev.broker import start_broker
from freshet.job.dev.script import unwind_at_signals
from freshet.job.folder.layout import IMAGE_DONE
from freshet.job.lifecycle.summary import progress
from tests.support.graphs.kinds import kinds_model, relation, sage_everywhere
from tests.support.graphs.models import conv, make_model
from tests.support.runs.jobs import FRESHET, ROOT
from tests.support.serving.browser import DESK, PHONE, browsing, visiting
from tests.support.serving.server import Server

PICTURES = ROOT / "docs" / "guide" / "pictures"
BYTES_MAX = 300_000
RATE = 1000
BEGIN_S = 900.0
WIDTH, GROUPS, CLASSES = 16, 6, 6
ACCOUNTS, USERS, ITEMS = 5000, 3000, 1200
BAD = (
    b'{"op":"add_vertex","id":"account-17","x":[0.5]}',
    b"account-4,account-9,12.50",
    b'{"op":"pay","src":"account-3"}',
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=240, help="of the stream before the pictures")
    parser.add_argument("--only", choices=("accounts", "kinds"), help="one of both jobs")
    parser.add_argument("--out", type=Path, default=PICTURES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="freshet-page-") as work:
        folder = Path(work)
        with start_broker(folder / "broker") as broker:
            for name, (made, how, kinds_here, chosen) in CASES.items():
                if options.only in (None, name):
                    made(folder / name, options.seconds + 120)
                    topic = f"kafka://{broker.address}/{name}"
                    with streaming(folder / name, topic, how, kinds_here) as page:
                        time.sleep(options.seconds)
                        draw(page, options.out, name, chosen)
    return 0


def accounts(folder: Path, seconds: int) -> None:
    """Write a model with six classes, and payments between accounts in groups."""
    folder.mkdir()
    head = [{"type": "linear", "in_channels": 32, "out_channels": CLASSES, "bias": True}]
    layers = [conv("sage_conv", WIDTH, 32), {"type": "relu"}, conv("sage_conv", 32, 32)]
    save_model(make_model(3, layers, head=head), folder / "model")
    rng = np.random.default_rng(7)
    middle = 2 * rng.standard_normal((GROUPS, WIDTH))

    born = [vertex(f"account-{k}", middle[k % GROUPS] + rng.standard_normal(WIDTH)) for k in range(ACCOUNTS)]
    (folder / "vertices.jsonl").write_bytes(b"\n".join(born))

    def records() -> Iterator[bytes]:
        while True:
            one, other = (int(k) for k in rng.integers(0, ACCOUNTS, 2))
            if rng.random() < 0.8:
                other = (other // GROUPS * GROUPS + one % GROUPS) % ACCOUNTS
            yield orjson.dumps({"op": "add_edge", "src": f"account-{one}", "dst": f"account-{other}"})
            if rng.random() < 0.1:
                yield vertex(f"account-{one}", middle[one % GROUPS] + rng.standard_normal(WIDTH))
            if rng.random() < 0.004:
                yield BAD[int(rng.integers(len(BAD)))]

    write(folder / "events.jsonl", records(), seconds)


def kinds(folder: Path, seconds: int) -> None:
    """Write a model of users and items, and purchases."""
    folder.mkdir()
    widths = {"user": WIDTH, "item": WIDTH}
    relations = [relation("user", "buys", "item"), relation("item", "bought_by", "user", mirrors=0)]
    layers = [sage_everywhere(widths, 32, relations), sage_everywhere(dict.fromkeys(widths, 32), 32, relations)]
    save_model(kinds_model(layers, ["user", "item"], widths, relations, seed=3), folder / "model")
    rng = np.random.default_rng(7)
    middle = 2 * rng.standard_normal((GROUPS, WIDTH))

    of_kinds = [(kind, k) for kind, count in (("user", USERS), ("item", ITEMS)) for k in range(count)]
    born = [vertex(k, middle[k % GROUPS] + rng.standard_normal(WIDTH), kind=kind) for kind, k in of_kinds]
    (folder / "vertices.jsonl").write_bytes(b"\n".join(born))

    def records() -> Iterator[bytes]:
        while True:
            user, item = int(rng.integers(USERS)), int(rng.integers(ITEMS))
            if rng.random() < 0.8:
                item = (item // GROUPS * GROUPS + user % GROUPS) % ITEMS
            yield orjson.dumps({"op": "add_edge", "src": user, "dst": item, "type": "buys"})
            if rng.random() < 0.002:
                yield orjson.dumps({"op": "add_edge", "src": user, "dst": item, "type": "sells"})

    write(folder / "events.jsonl", records(), seconds)


def vertex(id_: int | str, x: np.ndarray, **more: str) -> bytes:
    return orjson.dumps({"op": "add_vertex", "id": id_, "x": x.round(3).tolist(), **more})


def write(path: Path, records: Iterator[bytes], seconds: int) -> None:
    with path.open("wb") as file:
        for _ in range(RATE * seconds):
            file.write(next(records) + b"\n")


CASES: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...], str]] = {
    "accounts": (accounts, ("--parallelism", "2", "--parts", "4", "--id-type", "string"), (), "id=account-7"),
    "kinds": (kinds, ("--id-type", "int"), ("user", "item"), "kind=user&id=7"),
}


@contextmanager
def streaming(folder: Path, topic: str, how: tuple[str, ...], kinds: tuple[str, ...]) -> Iterator[str]:
    """A job on the topic with a server, and events that come into it; yields the address of the page."""
    run = ("run", "--model", folder / "model", "--events", topic, "--out", folder / "out", "--name", folder.name)
    server = Server(folder / "out", kind=kinds[0] if kinds else "", of=("--tables", str(folder / "out" / "tables")))
    with (folder / "log").open("wb") as log:

        def started(*words: object) -> subprocess.Popen[bytes]:
            return subprocess.Popen([str(FRESHET), *map(str, words)], stdout=log, stderr=log)

        def produced(name: str, *words: object) -> subprocess.Popen[bytes]:
            return started("produce", "--events", folder / name, "--to", topic, "--partitions", 2, *words)

        processes = [produced("vertices.jsonl")]
        try:
            processes[0].wait(120)
            processes.append(started(*run, "--latency-target", "100ms", *how))
            begins = time.monotonic() + BEGIN_S
            while not (folder / "out" / IMAGE_DONE).exists() and time.monotonic() < begins:
                time.sleep(0.5)  # it may compile kernels first
            told = server.start("--workers", "2", *(("--kind", ",".join(kinds)) if kinds else ()))
            while not progress(folder / "out")["events"] and time.monotonic() < begins:
                time.sleep(0.5)
            processes.append(produced("events.jsonl", "--rate", RATE))
            yield f"http://{told['http']}"
        except BaseException:
            print((folder / "log").read_text(), server.log(), sep="\n", file=sys.stderr)
            raise
        finally:
            server.end()
            for one in processes[::-1]:
                one.terminate()
            for one in processes[::-1]:
                one.wait(120)


def draw(address: str, out: Path, name: str, chosen: str) -> None:
    """Take the pictures of one job."""
    with browsing() as browser:
        for scheme in ("light", "dark"):
            with visiting(browser, address, color_scheme=scheme) as visit:
                visit.open("/", "Rejected records")
                visit.page.wait_for_timeout(4000)
                keep(visit, out / f"page-{name}-{scheme}.png", full_page=True)
                visit.open(f"/#/vertex?{chosen}", "Neighbours by embedding")
                visit.page.get_by_role("region", name="Nearest vertices").wait_for()
                visit.page.wait_for_timeout(1000)
                keep(visit, out / f"page-{name}-vertex-{scheme}.png", full_page=True)
        with visiting(browser, address, viewport=PHONE, device_scale_factor=2) as visit:
            visit.open("/", "The last hour")
            visit.page.wait_for_timeout(4000)
            keep(visit, out / f"page-{name}-phone.png")
        if name == "accounts":
            with visiting(browser, address, viewport=DESK) as visit:
                visit.open("/docs", "Answers")
                keep(visit, out / "page-docs.png")


def keep(visit: Any, path: Path, **how: Any) -> None:
    """Write a picture of a page that is as it should be."""
    raw = visit.page.screenshot(**how)
    Image.open(BytesIO(raw)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    wrong = [*visit.complaints, *visit.elsewhere]
    if wrong or visit.overflow() > 0 or path.stat().st_size > BYTES_MAX:
        sys.exit(f"{path}: {wrong}, wider by {visit.overflow()} px, {path.stat().st_size:,} bytes")
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())

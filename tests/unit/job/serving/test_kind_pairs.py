"""Scores of pairs whose ends are of two kinds: both at one epoch, and which head is taken."""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
import torch

from freshet import BadRequestError, EmbeddingClient, NotReadyError, NotYetError
from freshet.job import cli
from freshet.job.errors import UsageError
from freshet.job.serving.feeds.together import keep_in_step
from freshet.job.serving.protocol.wanted import PAIRS_MAX
from freshet.job.serving.tables import one_epoch
from freshet.state.served.ids import Ids
from freshet.state.served.mapped import NEWEST, Found
from freshet.state.served.reader import TableReader
from tests.support.serving.kinds_job import WIDTHS, HandKinds, LastOfBoth, row_of
from tests.support.serving.served_kinds import ServedKinds, hand_kinds, score_of

PAIRS = [(2, 2), (3, 7), (2, 99), (98, 3)]


def bilinear(left: str, right: str, seed: int = 1) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Bilinear(WIDTHS[left], WIDTHS[right], 1)


HEADS = {("user", "item"): bilinear("user", "item"), ("user", "shop"): bilinear("user", "shop", 2)}


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandKinds]:
    one = hand_kinds(tmp_path_factory.mktemp("job") / "O", link_head=HEADS)
    yield one
    one.close()


@pytest.fixture(scope="module")
def both(hand: HandKinds) -> Iterator[ServedKinds]:
    one = ServedKinds(hand, "user", "item")
    yield one
    one.close()


def torch_score(left: int, right: int) -> float | None:
    """The module's score of a user and an item at epoch 1."""
    if left not in range(2, 6) or right not in range(2, 8):
        return None
    rows = [torch.tensor([row_of(*one, 1)]).double() for one in (("user", 1.0), ("item", right / 2))]
    return float(copy.deepcopy(HEADS["user", "item"]).double()(*rows).item())


@pytest.mark.parametrize("way", ["flight", "mapped"])
def test_ends_of_two_kinds_are_scored_by_their_head(both: ServedKinds, way: str) -> None:
    with both.client(way) as client:
        epoch, scores, by = score_of(client, *PAIRS)
        assert (epoch, by, scores[2:]) == (1, "link_head", [None, None])
        assert scores[:2] == pytest.approx([torch_score(2, 2), torch_score(3, 7)], rel=1e-5)
        assert score_of(client, *PAIRS, kinds=("user", "item")) == (epoch, scores, by)
        near = client.nearest(3, k=3, metric="link")
        assert near.schema.names[:3] == ["id", "epoch", "embedding"]
        best = sorted(((torch_score(3, item), item) for item in range(2, 8)), reverse=True)[:3]
        assert near["id"].to_pylist() == [item for _, item in best]
        assert near["score"].to_pylist() == pytest.approx([one for one, _ in best], rel=1e-5)
        assert near.equals(client.nearest(vector=row_of("user", 1.0, 1), k=3, metric="link", kinds=("user", "item")))
        for call, says in (
            (lambda: client.nearest(99, metric="link"), "no vertex '99'"),
            (lambda: client.nearest(vector=[1.0], metric="link"), "expected 3 finite numbers, got 1"),
            (lambda: client.score(PAIRS, kinds=("item", "user")), r"no link head for item and user"),
            (lambda: client.score(PAIRS, kinds=("user",)), "kinds"),
            (
                lambda: client.score([PAIRS[0]] * (PAIRS_MAX + 1)),
                "pairs: expected a list of at most 100,000, got 100,001",
            ),
            (
                lambda: client.nearest(3, kinds=("user", "item")),
                "kinds: by cosine rows of both must have as many numbers, got 3 and 4",
            ),
        ):
            with pytest.raises(BadRequestError, match=says):
                call()
        with pytest.raises(NotYetError):
            client.score(PAIRS, min_epoch=9, timeout=0.05)


def test_rows_are_of_the_kind_that_is_named(both: ServedKinds) -> None:
    for kind in ("user", "item"):
        for way in ("flight", "mapped"):
            with both.client(way, kind=kind) as client:
                want = [row_of(kind, 1.0, 1)] * 2 if kind == "user" else [row_of(kind, k / 2, 1) for k in (2, 3)]
                assert client.get([2, 3])["embedding"].to_pylist() == want
                assert client.rows([2, 3])[2].tolist() == want
                assert client.all().num_rows == (4 if kind == "user" else 6)
                assert client.get([2], min_epoch=1, min_position={"0": 5}).num_rows == 1
                assert client.nearest(2, k=1)["embedding"].to_pylist() == want[:1]
                assert client.health()["kinds"][kind]["vertices"] == client.all().num_rows
    with both.client(kind="shop") as client, pytest.raises(BadRequestError, match="of user, item; name one of them"):
        client.get([2])
    with both.client() as client:
        for call in (lambda: client.get([2]), client.all, lambda: client.nearest(2), lambda: client.rows([2])):
            with pytest.raises(BadRequestError, match="kind: this server has the embeddings of user, item; name one"):
                call()
    with both.client("mapped") as client, pytest.raises(UsageError, match="give one of"):
        client.get([2])
    with flight.connect(f"grpc://127.0.0.1:{both.port}") as door:
        listed = [one.descriptor.command for one in door.list_flights()]
        assert [door.do_get(flight.Ticket(one)).read_all().num_rows for one in listed] == [4, 6]
        ticket = flight.Ticket(orjson.dumps({"score": [[2, 3]] * (PAIRS_MAX + 1)}))
        with pytest.raises(flight.FlightError, match="bad-request: pairs: expected a list of at most 100,000, got"):
            door.do_get(ticket).read_all()


def test_http(both: ServedKinds) -> None:
    def post(path: str, **body: Any) -> tuple[int, Any]:
        reply = both.http.post(path, json=body)
        return reply.status_code, reply.json()

    pairs = [list(one) for one in PAIRS]
    status, answer = post("/v1/score", pairs=pairs)
    assert (status, answer["as_of"], answer["unknown"]) == (200, 1, {"user": [98], "item": [99]})
    assert answer["scores"][:2] == pytest.approx([torch_score(2, 2), torch_score(3, 7)], rel=1e-5)
    assert answer["scores"][2:] == [None, None]
    assert post("/score", pairs=pairs, kinds=["user", "item"], ids_as="string")[1]["unknown"]["item"] == ["99"]
    assert [one["id"] for one in post("/nearest", id=3, metric="link", k=6)[1]["found"]] != []
    assert both.http.get("/embeddings/7", params={"kind": "item"}).json()["embedding"] == row_of("item", 3.5, 1)
    assert post("/embeddings", ids=[7], kind="item")[1]["found"][0]["embedding"] == row_of("item", 3.5, 1)
    assert post("/nearest", id=7, kind="item", k=1)[1]["found"][0]["id"] == 7
    for status, answer in (
        post("/embeddings", ids=[7]),
        post("/nearest", id=7),
        post("/get-online-features", features=["v:embedding"], entities={"id": [7]}),
        (lambda reply: (reply.status_code, reply.json()))(both.http.get("/embeddings/7")),
    ):
        assert (status, answer["kind"]) == (400, "bad-request")
        assert "has the embeddings of user, item; name one of them" in answer["error"]
    assert post("/score", pairs=pairs, kinds=["user"])[0] == 422
    assert post("/score", pairs=pairs[:1] * (PAIRS_MAX + 1))[1]["error"].startswith("pairs: expected a list of at most")
    status, answer = post("/score", pairs=pairs, kinds=["user", "shop"])
    assert status == 400
    assert "got [user, shop]; start one of both: `freshet serve --kind user,shop`" in answer["error"]


def test_a_server_that_lacks_a_kind_names_what_to_start(hand: HandKinds, both: ServedKinds, tmp_path: Path) -> None:
    other = hand_kinds(tmp_path / "O", link_head=HEADS)
    for kinds, says in (
        (("user",), r"embeddings of user, and the model scores \[user, item\], \[user, shop\]; start one of both: "),
        (("item", "shop"), "start one of both: `freshet serve --kind user,item`"),
        (("user", "item", "shop"), r"name those of the left and the right ids, of \[user, item\], \[user, shop\]"),
    ):
        one = ServedKinds(other, *kinds)
        try:
            with one.client() as client:
                with pytest.raises(BadRequestError, match=says):
                    client.score([(2, 2)])
                if len(kinds) == 3:
                    assert score_of(client, (2, 2), kinds=("user", "shop"))[2] == "link_head"
        finally:
            one.close()
    other.close()


def test_without_heads_it_is_the_dot_product_of_kinds_of_one_width(tmp_path: Path) -> None:
    hand = hand_kinds(tmp_path / "O")
    one = ServedKinds(hand, "user", "shop", "item")
    try:
        with one.client() as client:
            assert score_of(client, (2, 2), kinds=("user", "shop")) == (1, [3.0], "dot")
            with pytest.raises(BadRequestError, match=r"name those of the left and the right ids, of \[user, user\]"):
                client.score([(2, 2)])
            with pytest.raises(BadRequestError, match="embeddings of user are 3 wide and those of item 4"):
                client.score([(2, 2)], kinds=("user", "item"))
    finally:
        one.close()
        hand.close()


class Stream(threading.Thread):
    """Epochs that set all rows of all kinds, one after the other, each of them one in a row with its epoch."""

    def __init__(self, hand: HandKinds) -> None:
        super().__init__()
        self._hand, self.stop, self.epoch = hand, threading.Event(), 1

    def run(self) -> None:
        while not self.stop.wait(0.005) and self.epoch < 4_000:  # which the head can tell apart
            self.epoch += 1
            self._hand.apply_kinds(
                self.epoch, user=dict.fromkeys(range(2, 6), 1.0), item=dict.fromkeys(range(2, 8), 1.0)
            )


Read = Callable[[], tuple[int, list[float | None]]]


def ways(server: ServedKinds) -> list[Read]:
    """The epoch and scores of users 2 to 5 and items 2 to 7, by each way."""
    pairs = [*itertools.product(range(2, 6), range(2, 8))]
    clients = [server.client(), server.client("mapped")]
    ticket = flight.Ticket(orjson.dumps({"score": pairs}))

    def by_ticket() -> tuple[int, list[float | None]]:
        with flight.connect(f"grpc://127.0.0.1:{server.port}") as door:
            table = door.do_get(ticket).read_all()
        return int(table.schema.metadata[b"epoch"]), table["score"].to_pylist()

    def by_http() -> tuple[int, list[float | None]]:
        answer = server.http.post("/v1/score", json={"pairs": pairs}).json()
        return answer["as_of"], answer["scores"]

    def by_nearest() -> tuple[int, list[float | None]]:
        table = clients[0].nearest(3, k=6, metric="link")
        return int(table.schema.metadata[b"epoch"]), table["score"].to_pylist()

    return [*((lambda one=one: score_of(one, *pairs)[:2]) for one in clients), by_ticket, by_http, by_nearest]


def test_both_ends_are_of_the_epoch_of_the_answer_while_rows_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs pass between the reads of both ends."""
    read_rows = TableReader.get

    def slow(self: TableReader, ids: Ids, upto: int = NEWEST) -> Found:
        found = read_rows(self, ids, upto)
        time.sleep(0.01)
        return found

    monkeypatch.setattr(TableReader, "get", slow)
    hand = hand_kinds(tmp_path / "O", link_head={("user", "item"): LastOfBoth()})
    server, stream = ServedKinds(hand, "user", "item"), Stream(hand)
    try:
        stream.start()
        epochs: dict[int, list[int]] = {}
        for number, read in itertools.islice(itertools.cycle(enumerate(ways(server))), 200):
            epoch, scores = read()
            assert set(scores) == {4097.0 * epoch}, (number, epoch)
            epochs.setdefault(number, []).append(epoch)
        assert all(one == sorted(one) and len(set(one)) > 5 for one in epochs.values()), epochs
    finally:
        stream.stop.set()
        stream.join()
        server.close()
        hand.close()


def test_tables_that_are_not_at_one_epoch_are_not_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of both kinds stands still, as if its server had ended."""
    monkeypatch.setattr(one_epoch, "PATIENCE_S", 0.05)
    hand = hand_kinds(tmp_path / "O", link_head={("user", "item"): LastOfBoth()})
    server = ServedKinds(hand, "user", "item")
    try:
        server.followers[1].step = lambda: False  # type: ignore[method-assign]
        hand.apply_kinds(2, user={2: 1.0}, item={2: 1.0})
        with server.client("flight", kind="user") as client:
            assert client.get([2], min_epoch=2)["embedding"].to_pylist() == [row_of("user", 1.0, 2)]
        with server.client(timeout=0.1) as client:
            for call in (lambda: client.score([(2, 2)]), lambda: client.nearest(2, metric="link")):
                with pytest.raises(NotReadyError, match="user and item are at two epochs, 2 and 1; ask again"):
                    call()
        assert server.http.post("/score", json={"pairs": [[2, 2]]}).status_code == 503
        assert server.health.figures()["epoch"] == 1
    finally:
        server.close()
        hand.close()


def test_followers_that_jump_come_to_one_epoch(tmp_path: Path) -> None:
    """Without tails the change log shows the kinds at epochs of their own."""

    class Log:
        base = 0

    class Jumping:
        """Comes to a multiple of its own by each turn, but no further than it may."""

        def __init__(self, step: int) -> None:
            self.job, self.step, self.upto, self.epoch = Log(), step, 0, 0

        @property
        def table(self) -> Jumping:
            return self

    followers, common = [Jumping(3), Jumping(5)], set[int]()
    for _ in range(40):
        keep_in_step(followers)  # type: ignore[arg-type]
        for one in followers:
            one.epoch = min(one.upto, one.epoch + one.step)
        if len({one.epoch for one in followers}) == 1:
            common.add(followers[0].epoch)
    assert len(common) > 10


def test_the_command_prints_scores_of_two_kinds(
    both: ServedKinds, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def freshet(*arguments: object) -> tuple[int, list[Any], str]:
        with pytest.raises(SystemExit) as end:
            cli.main(["query", "--format", "json", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), [orjson.loads(line) for line in out.splitlines()], err

    file = tmp_path / "pairs.parquet"
    pq.write_table(pa.table({"left": [2, 3], "right": [2, 7]}), file)
    for at in (f"127.0.0.1:{both.port}", both.tables):
        want = [torch_score(2, 2), torch_score(3, 7)]
        for given in (("--pairs", "2:2", "3:7"), ("--pairs-file", file), ("--pairs-file", file, "--kind", "user,item")):
            code, rows, err = freshet("--at", at, *given)
            assert code == 0, err
            assert [one["score"] for one in rows] == pytest.approx(want, rel=1e-5)
        code, rows, err = freshet("--at", at, "--kind", "item", 7)
        assert (code, rows[0]["embedding"]) == (0, row_of("item", 3.5, 1)), err
        code, _, err = freshet("--at", at, 7)
        assert code == 2
        assert "user" in err and "item" in err
        pq.write_table(pa.table({"left": [2] * (PAIRS_MAX + 1), "right": [3] * (PAIRS_MAX + 1)}), tmp_path / "many")
        code, _, err = freshet("--at", at, "--pairs-file", tmp_path / "many")
        assert (code, "pairs: expected a list of at most 100,000, got 100,001" in err) == (2, True)
    code, _, err = freshet("--at", f"127.0.0.1:{both.port}", "--kind", "shop", 7)
    assert (code, "has the embeddings of user, item" in err) == (2, True)


def test_an_address_and_a_kind_that_do_not_fit(both: ServedKinds) -> None:
    with EmbeddingClient(both.tables / "user", kind="item") as client:
        with pytest.raises(BadRequestError, match="has the embeddings of user, got 'item'"):
            client.get([2])

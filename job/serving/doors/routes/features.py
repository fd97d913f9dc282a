"""Answers as Feast's feature server gives them."""

from __future__ import annotations

from fastapi import Request, Response

from freshet.job.serving.bounds.forms import OnlineFeatures
from freshet.job.serving.doors.feast import feast_bytes, feast_parts, moments_of
from freshet.job.serving.doors.json_answers import INLINE_BYTES
from freshet.job.serving.doors.routes.answers import FeatureColumns
from freshet.job.serving.doors.routes.asking import as_of, found_in, sent
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.protocol.wanted import Wanted
from freshet.job.serving.tables.served import Served


def add(routes: Routes) -> None:
    """Add POST /get-online-features."""
    lookup, apart = routes.lookup, routes.apart

    @routes.post("/get-online-features", OnlineFeatures, name="get_online_features", answer=FeatureColumns)
    async def online_features(request: Request) -> Response:
        """Answer like Feast's feature server: columns of values, with their statuses."""
        asked, size_sent = await sent(apart, OnlineFeatures, request)
        name, values = next(iter(asked.entities.items()), ("id", []))  # the form takes one at most

        def size_of(served: Served) -> int:
            return feast_bytes(served.table.width, asked.columns, len(values)) + 2 * size_sent

        answer, held, size = await found_in(lookup.of(None), apart, values, Wanted(), size_of)
        names = [name, *asked.names]
        head = {"metadata": {"feature_names": names, **as_of(answer.served, answer.epoch)}}
        try:
            moments = await apart(size <= INLINE_BYTES, moments_of, lookup, answer)
        except BaseException:
            held.release()
            raise
        return apart.answer(feast_parts(head, values, asked.columns, answer, moments), size, held)

"""A Flight server that does nothing but answer: a lookup stream of constant rows, which `bench_serve` compares with."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from freshet.job.serving.protocol.columns import ids_of_column, numbers, vectors


class Constant(flight.FlightServerBase):  # type: ignore[misc, unused-ignore]
    """Answers each batch of ids with as many rows, made beforehand."""

    def __init__(self, location: str, width: int) -> None:
        super().__init__(location)
        self._width = width

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Answer until the client ends the stream."""
        answers: dict[int, pa.RecordBatch] = {}
        begun = False
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            n = chunk.data.num_rows
            if n not in answers:
                ids = ids_of_column(chunk.data.column(0))
                assert isinstance(ids, np.ndarray), "this benchmark sends numbers"
                columns = [numbers(ids), numbers(np.ones(n, np.int64)), vectors(np.ones((n, self._width), np.float32))]
                answers[n] = pa.RecordBatch.from_arrays(columns, ["id", "epoch", "embedding"])
            if not begun:
                writer.begin(answers[n].schema)
                begun = True
            writer.write_with_metadata(answers[n], b'{"epoch":1}')


if __name__ == "__main__":
    server = Constant("grpc://127.0.0.1:0", int(sys.argv[1]))
    print(server.port, flush=True)
    server.serve()

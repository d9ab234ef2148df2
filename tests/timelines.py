"""Small helpers with which a test reads as a timeline. Times are seconds from 0."""

from __future__ import annotations

from pathlib import Path

import rlinsight

S = 1_000_000_000

TOPOLOGY = rlinsight.Topology(
    devices=[
        rlinsight.Device("n0/0", node="n0", index=0, kind="cpu", pool="trainer"),
        rlinsight.Device("n1/0", node="n1", index=0, kind="cpu", pool="rollout"),
    ],
    lanes=[
        rlinsight.Lane("trainer", role="trainer", devices=["n0/0"]),
        rlinsight.Lane("trainer/rank0", role="trainer_rank", devices=["n0/0"], rank=0),
        rlinsight.Lane("rollouter", role="rollouter", devices=["n1/0"]),
        rlinsight.Lane(
            "replica0", role="replica", devices=["n1/0"], engine_kind="standalone", capacity=4
        ),
    ],
)


class Timeline:
    """Writes a trace from (activity, start_s, end_s) phrases and opens it."""

    def __init__(self, path: Path, topology: rlinsight.Topology = TOPOLOGY, **header) -> None:
        self.path = path
        self.writer = rlinsight.TraceWriter(
            path, topology=topology, **{"mode": "fully_async", **header}
        )
        self._requests = 0

    def span(self, lane: str, activity: str, start: float, end: float | None, **columns) -> None:
        self.writer.span(
            activity,
            lane=lane,
            start_ns=round(start * S),
            end_ns=None if end is None else round(end * S),
            **columns,
        )

    def step(self, number: int, start: float, end: float, **columns) -> None:
        self.span("trainer", "step", start, end, step=number, **columns)

    def gen(self, start: float, end: float, lane: str = "replica0", **columns) -> None:
        self._requests += 1
        self.writer.request(
            **{
                "request_id": f"r{self._requests}",
                "lane": lane,
                "submit_ns": round(start * S),
                "end_ns": round(end * S),
                "finish": "stop",
                **columns,
            }
        )

    def trained(self, uid: str, at: float, tokens: tuple[int, int], step: int, **columns) -> None:
        self.writer.sample(
            **{
                "sample_uid": uid,
                "fate": "trained",
                "consumed_ns": round(at * S),
                "prompt_tokens": tokens[0],
                "response_tokens": tokens[1],
                "trained_step": step,
                **columns,
            }
        )

    def open(self) -> rlinsight.Trace:
        self.writer.close()
        return rlinsight.open(self.path)

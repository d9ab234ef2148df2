"""The tables of a trace, version 1: column names, Arrow types and the activity vocabulary.

All times are int64 nanoseconds since the Unix epoch. A column declared nullable holds
null where the value is not known; unknown is never written as 0.
"""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa

SCHEMA_VERSION: Final = 1

TableName = Literal["spans", "requests", "samples", "counters", "metrics", "markers"]

_NAME = pa.dictionary(pa.int32(), pa.string())
_ATTRS = pa.map_(pa.string(), pa.string())


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_SPANS = pa.schema(
    [
        _required("start_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),  # null: the interval was begun and never ended
        _required("activity", _NAME),
        _required("lane", _NAME),
        pa.field("step", pa.int32()),
        pa.field("param_version", pa.int32()),
        pa.field("attrs", _ATTRS),
    ]
)

_REQUESTS = pa.schema(
    [
        _required("request_id", pa.string()),
        pa.field("sample_uid", pa.string()),
        _required("lane", _NAME),
        pa.field("engine_kind", _NAME),  # hybrid | standalone | colocated
        _required("submit_ns", pa.int64()),
        pa.field("first_token_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),  # null: in flight when the recording stopped
        pa.field("prompt_tokens", pa.int32()),
        pa.field("response_tokens", pa.int32()),
        pa.field("version_start", pa.int32()),
        pa.field("version_end", pa.int32()),
        pa.field("finish", _NAME),  # stop | length | abort | error
        pa.field("attempt", pa.int32()),
        pa.field("validate", pa.bool_()),
    ]
)

_SAMPLES = pa.schema(
    [
        _required("sample_uid", pa.string()),
        pa.field("group_uid", pa.string()),
        pa.field("produced_ns", pa.int64()),
        pa.field("consumed_ns", pa.int64()),
        pa.field("prompt_tokens", pa.int32()),
        pa.field("response_tokens", pa.int32()),
        pa.field("version_start", pa.int32()),
        pa.field("version_end", pa.int32()),
        pa.field("trained_version", pa.int32()),
        pa.field("trained_step", pa.int32()),
        pa.field("reward", pa.float64()),
        pa.field("fate", _NAME),  # trained | dropped_stale | filtered | aborted | unconsumed
    ]
)

_COUNTERS = pa.schema(
    [
        _required("ts_ns", pa.int64()),
        _required("name", _NAME),
        _required("lane", _NAME),
        _required("value", pa.float64()),
    ]
)

_METRICS = pa.schema(
    [
        _required("ts_ns", pa.int64()),
        pa.field("step", pa.int32()),
        _required("key", _NAME),
        _required("value", pa.float64()),
    ]
)

_MARKERS = pa.schema(
    [
        _required("ts_ns", pa.int64()),
        _required("kind", _NAME),
        pa.field("lane", _NAME),
        pa.field("param_version", pa.int32()),
        pa.field("reason", _NAME),
        pa.field("attrs", _ATTRS),
    ]
)

TABLES: Final[dict[TableName, pa.Schema]] = {
    "spans": _SPANS,
    "requests": _REQUESTS,
    "samples": _SAMPLES,
    "counters": _COUNTERS,
    "metrics": _METRICS,
    "markers": _MARKERS,
}

#: The column that orders a table in time. A sample that was never produced has no time.
TIME_COLUMN: Final[dict[TableName, str]] = {
    "spans": "start_ns",
    "requests": "submit_ns",
    "samples": "produced_ns",
    "counters": "ts_ns",
    "metrics": "ts_ns",
    "markers": "ts_ns",
}

#: The column that ends a row's interval, for tables whose rows are intervals.
END_COLUMN: Final[dict[TableName, str]] = {
    "spans": "end_ns",
    "requests": "end_ns",
    "samples": "consumed_ns",
}

#: Columns holding a time, to which a node's clock offset is applied on read.
TIME_COLUMNS: Final[dict[TableName, tuple[str, ...]]] = {
    name: tuple(f.name for f in schema if f.name.endswith("_ns")) for name, schema in TABLES.items()
}

TRAINER_ACTIVITIES: Final = frozenset(
    {
        "wait_samples", "reward", "old_log_prob", "ref_log_prob", "values", "advantage",
        "update_critic", "update_actor", "weight_sync", "validate", "checkpoint",
        "switch_to_rollout", "switch_to_trainer",
    }
)  # fmt: skip
ROLLOUTER_ACTIVITIES: Final = frozenset({"paused", "validate"})
REPLICA_ACTIVITIES: Final = frozenset({"weight_sync", "sleep", "wake", "paused"})
#: `step` is a container: it is never counted as time of its own.
CONTAINER_ACTIVITIES: Final = frozenset({"step"})
ACTIVITIES: Final = (
    TRAINER_ACTIVITIES
    | ROLLOUTER_ACTIVITIES
    | REPLICA_ACTIVITIES
    | CONTAINER_ACTIVITIES
    | {"tool", "init"}
)

PAUSE_REASONS: Final = frozenset({"staleness_quota", "queue_full", "weight_sync", "drain"})
FINISH_KINDS: Final = frozenset({"stop", "length", "abort", "error"})
FATES: Final = frozenset({"trained", "dropped_stale", "filtered", "aborted", "unconsumed"})
ENGINE_KINDS: Final = frozenset({"hybrid", "standalone", "colocated"})


def canonical_activity(name: str) -> str:
    """Return `name` if it is in the vocabulary, else `other:<name>` so that nothing is lost."""
    if name in ACTIVITIES or name.startswith("other:"):
        return name
    return f"other:{name}"

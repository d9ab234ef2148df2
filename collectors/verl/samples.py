"""Trajectories at the trainer: what was consumed, with which versions, and trained when.

A `sample_uid` is `<group uid>/<rollout index>`. What other processes know of the same
trajectory (when it was produced, that it was dropped) comes in rows of theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rlinsight.collectors.verl.hooks import FULLY_ASYNC, V1, Call, Hook
from rlinsight.collectors.verl.position import position

_FULLY_ASYNC = "verl.experimental.fully_async_policy"

Row = dict[str, Any]


@dataclass
class _Pending:
    """What the driver gathered since it last began to collect a batch."""

    rewards: dict[str, float] = field(default_factory=dict)
    received: list[tuple[int, Any]] = field(default_factory=list)  # (time, pickled sample)
    rows: list[Row] = field(default_factory=list)


_pending = _Pending()


def sample_uid_of_key(key: str) -> tuple[str, str]:
    """Return (sample_uid, group_uid) of a TransferQueue key `<uid>_<session>_<output>`.

    Outputs of one session after the first get `.1`, `.2`, … appended to their uid.
    """
    uid, session, output = key.rsplit("_", 2)
    suffix = "" if output == "0" else f".{output}"
    return f"{uid}/{session}{suffix}", uid


# -- v1 trainers -----------------------------------------------------------------------


def _rewards_enter(call: Call) -> None:
    scores = call.arg(0, "data").batch["token_level_scores"].sum(-1).tolist()
    keys = call.arg(1, "batch_keys")
    _pending.rewards = dict(zip(keys, scores, strict=True))


def _sampled_exit(call: Call) -> None:
    if call.error is None and call.arg(0, "partition_id") == "train":
        _pending.received = [(call.end_ns or 0, None)]


def _step_enter(call: Call) -> None:
    call.state = (position.step, position.param_version)
    _pending.rewards, _pending.received = {}, []


def _step_exit(call: Call) -> None:
    if call.error is not None:
        return
    step, version = call.state
    consumed_ns = _pending.received[0][0] if _pending.received else None
    for key, tag in zip(call.result.keys, call.result.tags, strict=True):
        if tag.get("is_padding"):
            continue
        sample_uid, group_uid = sample_uid_of_key(key)
        call.rec.sample(
            sample_uid=sample_uid,
            group_uid=group_uid,
            consumed_ns=consumed_ns,
            prompt_tokens=tag.get("prompt_len"),
            response_tokens=tag.get("response_len"),
            version_start=tag.get("min_global_steps"),
            version_end=tag.get("max_global_steps"),
            trained_version=version,
            trained_step=step,
            reward=_pending.rewards.get(key),
            fate="trained",
        )


# -- fully asynchronous trainer --------------------------------------------------------


def _collect_enter(_: Call) -> None:
    _pending.received, _pending.rows = [], []


def _received_exit(call: Call) -> None:
    if call.error is None and position.is_driver and call.result[0] is not None:
        _pending.received.append((call.end_ns or 0, call.result[0]))


def _assemble_enter(call: Call) -> None:
    times = [ns for ns, _ in _pending.received]
    rows = _rows_of_groups(call.arg(0, "rollout_samples"), times)
    _pending.rows, _pending.received = list(rows), []


def _collect_exit(call: Call) -> None:
    """What was taken from the queue for a batch that never filled is lost: say so."""
    if call.error is not None or not _pending.received:
        return
    cloudpickle = sys.modules["ray"].cloudpickle
    groups = [cloudpickle.loads(blob) for _, blob in _pending.received]
    for row in _rows_of_groups(groups, [ns for ns, _ in _pending.received]):
        call.rec.sample(**row, fate="unconsumed")
    _pending.received = []


def _fit_step_enter(call: Call) -> None:
    call.state = (position.step, position.param_version)
    _pending.rows = []


def _fit_step_exit(call: Call) -> None:
    rows, _pending.rows = _pending.rows, []
    if call.error is not None:
        return
    step, version = call.state
    for row in rows:
        call.rec.sample(**row, trained_step=step, trained_version=version, fate="trained")


def _rows_of_groups(groups: Iterable[Any], times: list[int]) -> Iterable[Row]:
    for index, group in enumerate(groups):
        consumed_ns = times[index] if index < len(times) else None
        yield from _rows_of_group(group.full_batch, f"uid_{group.sample_id}", consumed_ns)


def _rows_of_group(data: Any, group_uid: str, consumed_ns: int | None) -> Iterable[Row]:
    prompts, responses = token_counts(data.batch)
    scores = data.batch["rm_scores"].sum(-1).tolist() if "rm_scores" in data.batch else None
    starts = data.non_tensor_batch.get("min_global_steps")
    ends = data.non_tensor_batch.get("max_global_steps")
    for index in range(len(prompts)):
        yield {
            "sample_uid": f"{group_uid}/{index}",
            "group_uid": group_uid,
            "consumed_ns": consumed_ns,
            "prompt_tokens": prompts[index],
            "response_tokens": responses[index],
            "version_start": _integer(starts, index),
            "version_end": _integer(ends, index),
            "reward": None if scores is None else scores[index],
        }


def token_counts(batch: Any) -> tuple[list[int], list[int]]:
    """Return prompt and response tokens per row of a padded batch, padding left out."""
    mask, width = batch["attention_mask"], batch["prompts"].shape[-1]
    return mask[:, :width].sum(-1).tolist(), mask[:, width:].sum(-1).tolist()


def _integer(values: Any, index: int) -> int | None:
    value = None if values is None else values[index]
    return None if value is None else int(value)


HOOKS = (
    Hook(
        name="samples.v1.sampled",
        module="verl.trainer.ppo.v1.replay_buffer",
        target="ReplayBuffer._materialize_batch",
        records="when the trainer got its trajectories",
        exit=_sampled_exit,
        modes=V1,
        needs=("partition_id",),
    ),
    Hook(
        name="samples.v1.rewards",
        module="verl.trainer.ppo.v1.utils",
        target="compute_advantage_for_multi_trajectories",
        records="the reward of each trajectory",
        enter=_rewards_enter,
        modes=V1,
        needs=("data", "batch_keys"),
    ),
    Hook(
        name="samples.v1.trained",
        module="verl.trainer.ppo.v1.trainer_base",
        target="PPOTrainer._step_once",
        records="one row per trained trajectory: lengths, versions, reward, trained step",
        enter=_step_enter,
        exit=_step_exit,
        modes=V1,
    ),
    Hook(
        name="samples.fully_async.collect",
        module=f"{_FULLY_ASYNC}.fully_async_trainer",
        target="FullyAsyncTrainer._get_samples_from_queue",
        records="trajectories taken from the queue that no batch used, when the run ends",
        enter=_collect_enter,
        exit=_collect_exit,
        modes=FULLY_ASYNC,
    ),
    Hook(
        name="samples.fully_async.received",
        module=f"{_FULLY_ASYNC}.message_queue",
        target="MessageQueueClient.get_sample",
        records="when the trainer got each sample",
        exit=_received_exit,
        modes=FULLY_ASYNC,
    ),
    Hook(
        name="samples.fully_async.assembled",
        module=f"{_FULLY_ASYNC}.detach_utils",
        target="assemble_batch_from_rollout_samples",
        records="lengths, versions and rewards of the trajectories of a batch",
        enter=_assemble_enter,
        modes=FULLY_ASYNC,
        needs=("rollout_samples",),
    ),
    Hook(
        name="samples.fully_async.trained",
        module=f"{_FULLY_ASYNC}.fully_async_trainer",
        target="FullyAsyncTrainer.fit_step",
        records="one row per trained trajectory: lengths, versions, reward, trained step",
        enter=_fit_step_enter,
        exit=_fit_step_exit,
        modes=FULLY_ASYNC,
    ),
)

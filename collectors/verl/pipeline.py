"""Samples between rollout and trainer: the queue, the buffer, the rollouter's quota."""

from __future__ import annotations

from rlinsight.collectors.verl import message_queue, replay, rollouter

HOOKS = (*message_queue.HOOKS, *rollouter.HOOKS, *replay.HOOKS)

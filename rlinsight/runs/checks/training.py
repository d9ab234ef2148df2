"""Settings of training that cost most of the device time, or fail in the first step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rlinsight.runs.checks.facts import Check, Facts, Problem
from rlinsight.runs.kernel_window import fused_log_probs

_MODEL: Final = "actor_rollout_ref.model"


def log_probs_are_vectorized(facts: Facts) -> Problem | None:
    """Verl computes log-probabilities token by token in Python where it has no kernel for it.

    `logprobs_from_logits` takes flash-attn's cross-entropy where it is installed; without it and
    without fused kernels, every token of bfloat16 logits is a few kernel launches of its own.
    """
    if facts.config.device != "cuda" or facts.config.ray_address is not None:
        return None
    if fused_log_probs() or _fused(facts):
        return None
    return Problem(
        "flash-attn is not installed: verl then computes log-probabilities in a Python loop over "
        "tokens, and the device idles meanwhile (on an H200 it was busy for a quarter of "
        "`update_actor`). Install flash-attn",
        severity="warning",
    )


def fused_kernels_find_their_weights(facts: Facts) -> Problem | None:
    """Verl 0.9.1's fused kernels read `lm_head.weight`, which FSDP2 shards apart unless tied."""
    strategy = facts.settings.get("actor_rollout_ref.actor.strategy")
    if not _fused(facts) or strategy != "fsdp2" or _tied(facts.managed.model) is not False:
        return None
    return Problem(
        "`use_fused_kernels` with strategy fsdp2 fails in the first step when embeddings are not "
        "tied, as in this model (`aten.mm.default got mixed torch.Tensor and DTensor`); turn "
        f"`{_MODEL}.use_fused_kernels` off"
    )


def _fused(facts: Facts) -> bool:
    return bool(facts.settings.get(f"{_MODEL}.use_fused_kernels"))


def _tied(model: str) -> bool | None:
    """Return whether a local model ties its embeddings, None where that is not known."""
    try:
        config: dict[str, Any] = json.loads((Path(model) / "config.json").read_text())
    except (OSError, ValueError):
        return None
    tied = config.get("tie_word_embeddings")
    return tied if isinstance(tied, bool) else None


CHECKS: Final = (
    Check("log-probabilities", log_probs_are_vectorized),
    Check("fused kernels", fused_kernels_find_their_weights),
)

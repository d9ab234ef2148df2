"""Token budgets, sequence lengths and attention kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rlinsight.analyzers.parallel import (
    ULYSSES,
    sequence_parallel_key,
    sequence_parallel_size,
)
from rlinsight.runs.checks.facts import Check, Facts, Problem

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_BUDGETS: Final = (
    f"{_ACTOR}.ppo_max_token_len_per_gpu",
    f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",
)
_LINEAR_ATTENTION_TYPES: Final = ("qwen3_5", "qwen3_next")


def token_budget_holds_a_sequence(facts: Facts) -> Problem | None:
    """With dynamic batches, the longest sequence must fit the budget of one device.

    verl compares budget x sequence-parallel size with the longest sequence of a batch, so a
    budget that is too small fails only when a long response comes.
    """
    longest = longest_sequence(facts)
    if longest is None or not facts.settings.get(f"{_ACTOR}.use_dynamic_bsz"):
        return None
    get = facts.settings.get
    share = sequence_parallel_size(get)
    needed = -(-longest // share)
    small = [(k, b) for k in _BUDGETS if (b := facts.number(k)) is not None and b < needed]
    if not small:
        return None
    found = ", ".join(f"{key}={budget}" for key, budget in small)
    return Problem(
        f"the token budget per device must be at least the longest sequence "
        f"({longest} tokens: data.max_prompt_length + data.max_response_length) / "
        f"sequence-parallel size {share} = {needed}, found {found}; raise the budget, "
        f"shorten the sequences or raise {sequence_parallel_key(get).rsplit('.', 1)[1]}"
    )


def longest_sequence(facts: Facts) -> int | None:
    """Return prompt + response tokens at most, or None where the settings do not say."""
    prompt = facts.number("data.max_prompt_length")
    response = facts.number("data.max_response_length")
    return None if prompt is None or response is None else prompt + response


def engine_takes_a_sequence(facts: Facts) -> Problem | None:
    """A shorter `max_model_len` cuts responses, and verl's clip ratio does not show it."""
    longest, limit = longest_sequence(facts), facts.number(f"{_ROLLOUT}.max_model_len")
    if longest is None or limit is None or limit >= longest:
        return None
    return Problem(
        f"{_ROLLOUT}.max_model_len={limit} is below the longest sequence of {longest} tokens: "
        "responses will be cut there, and verl's response_length/clip_ratio will not count them",
        severity="warning",
    )


def model_takes_a_sequence(facts: Facts) -> Problem | None:
    """An engine longer than the model's positions is refused by verl, minutes after the start.

    The emulated engine loads no model, and takes any length.
    """
    if facts.config.device == "emulated":
        return None
    limit = facts.number(f"{_ROLLOUT}.max_model_len")
    model, config = _policy(facts)
    positions = None if config is None else _positions(config)
    if limit is None or positions is None or limit <= positions:
        return None
    return Problem(
        f"{_ROLLOUT}.max_model_len must be at most the {positions} positions of the policy "
        f"`{model}` (max_position_embeddings), found {limit}"
    )


def linear_attention_is_not_split(facts: Facts) -> Problem | None:
    """Linear attention carries a state along the sequence, which Ulysses would cut."""
    share = facts.number(ULYSSES) or 1
    if share == 1:
        return None
    model, config = _policy(facts)
    if config is None or not has_linear_attention(config):
        return None
    return Problem(
        f"the policy `{model}` ({config.get('model_type')}) has linear-attention layers, which "
        f"need {ULYSSES}=1, found {share}"
    )


def _policy(facts: Facts) -> tuple[str, dict[str, Any] | None]:
    model = str(facts.settings.get("actor_rollout_ref.model.path") or facts.managed.model)
    return model, model_config(model)


def _positions(config: dict[str, Any]) -> int | None:
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        if isinstance(found := part.get("max_position_embeddings"), int):
            return found
    return None


def model_config(model: str) -> dict[str, Any] | None:
    """Return the `config.json` of a model folder, or None where there is none to read."""
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def has_linear_attention(config: dict[str, Any]) -> bool:
    """Tell whether some layer of the model is linear attention."""
    text = config.get("text_config")
    parts = [config, text] if isinstance(text, dict) else [config]
    return any(
        "linear_attention" in (part.get("layer_types") or ())
        or str(part.get("model_type", "")).startswith(_LINEAR_ATTENTION_TYPES)
        for part in parts
    )


CHECKS: Final = (
    Check("token budget", token_budget_holds_a_sequence),
    Check("engine length", engine_takes_a_sequence),
    Check("model length", model_takes_a_sequence),
    Check("linear attention", linear_attention_is_not_split),
)

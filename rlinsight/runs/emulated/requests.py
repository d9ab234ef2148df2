"""Wrappers around what verl does for each request.

A wrapper may be pickled together with a class that Ray exports by value, so it imports what it
needs when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def named_request(original: Function) -> Function:
    """Say with each request whose it is, so that its length does not depend on the run.

    The name of a prompt is verl's own where that is the same in every run, else the step and
    place at which it was drawn.
    """

    async def run(
        worker: Any, sampling_params: dict[str, Any], trajectory: Any, **kwargs: Any
    ) -> Any:
        from rlinsight.runs.emulated.handles import INDEX, PROMPT, SENT
        from rlinsight.trace.run_clock import CLOCK

        uid = str(kwargs.get("uid", ""))
        kind = "validate" if trajectory["validate"] else "train"
        drawn = f"{kind}/{trajectory['step']}/{trajectory['sample_index']}"
        named = {
            PROMPT: uid if uid.startswith("uid_sample") else drawn,
            INDEX: kwargs.get("session_id", trajectory["rollout_n"]),
            SENT: CLOCK.now_ns(),
        }
        return await original(worker, {**sampling_params, **named}, trajectory, **kwargs)

    return run


def reward_at_once(original: Function) -> Function:
    """Give each response a reward where it is generated: a number drawn from its name."""

    async def run(loop: Any, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        import hashlib

        from rlinsight.runs.emulated.handles import INDEX, PROMPT

        output = await original(loop, sampling_params, **kwargs)
        name = f"{sampling_params.get(PROMPT)}/{sampling_params.get(INDEX)}"
        output.reward_score = hashlib.blake2b(name.encode()).digest()[0] / 255.0
        output.extra_fields.setdefault("reward_extra_info", {})
        return output

    return run


def direct_padding(original: Function) -> Function:
    """Pad without the tokenizer, whose own way costs milliseconds for thousands of tokens."""

    def pad(
        worker: Any,
        tokens: Any,
        *,
        max_length: int,
        padding_side: str,
        return_attention_mask: bool,
    ) -> Any:
        import torch

        if len(tokens) > max_length:
            return original(
                worker,
                tokens,
                max_length=max_length,
                padding_side=padding_side,
                return_attention_mask=return_attention_mask,
            )
        fill = worker.tokenizer.pad_token_id or 0
        where = slice(0, len(tokens))
        if padding_side == "left":
            where = slice(max_length - len(tokens), max_length)
        ids = torch.full((1, max_length), fill, dtype=torch.long)
        ids[0, where] = torch.tensor(tokens, dtype=torch.long)
        result = {"input_ids": ids}
        if return_attention_mask:
            result["attention_mask"] = torch.zeros((1, max_length), dtype=torch.long)
            result["attention_mask"][0, where] = 1
        return result

    return pad


class DirectHydra:
    """Stands in for the module `hydra` where verl makes an agent loop for each request.

    `hydra.utils.instantiate` resolves the whole configuration each time: 4 ms of CPU.
    """

    class utils:  # noqa: N801 - it is called as `hydra.utils.instantiate`
        """The one part that is used."""

        @staticmethod
        def instantiate(config: Any, **given: Any) -> Any:
            """Return an object of the class that `config` names."""
            import importlib

            module, _, name = config["_target_"].rpartition(".")
            made = getattr(importlib.import_module(module), name)
            rest = {key: value for key, value in config.items() if key != "_target_"}
            return made(**rest, **given)

    def __reduce__(self) -> tuple[Any, ...]:
        return (DirectHydra, ())

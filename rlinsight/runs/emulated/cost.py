"""The cost model of emulated devices: section `emulated` of a run's YAML.

All times are emulated seconds, except where the name says otherwise.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from rlinsight.runs.section import Section

Seconds = Annotated[float, Field(ge=0)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Lengths(Section):
    """How long the responses are: log-normal with a cap, or as a recorded trace has them."""

    median: float = Field(default=1000.0, gt=0, description="Median length in tokens.")
    sigma: float = Field(
        default=0.8, ge=0, description="Standard deviation of the lengths' natural logarithm."
    )
    prompt_share: Ratio = Field(
        default=0.5,
        description="Share of the logarithm's variance that is common to a prompt's responses.",
    )
    cap: Count | None = Field(
        default=None, description="Longest response in tokens. Default: data.max_response_length."
    )
    trace: str | None = Field(
        default=None,
        description="Trace whose response lengths are drawn from, instead of median and sigma.",
    )
    quantiles: list[Annotated[int, Field(ge=1)]] | None = Field(
        default=None,
        min_length=2,
        description="Lengths at equally spaced quantiles, first 0 and last 1, instead of both.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Lengths:
        if self.trace is not None and self.quantiles is not None:
            raise ValueError("`trace` and `quantiles` are two sources of lengths; leave one out")
        if self.quantiles is not None and sorted(self.quantiles) != self.quantiles:
            raise ValueError("`quantiles` must not fall")
        return self


class Generation(Section):
    """A replica: how long prefill and a decoding step take, and how much its KV cache holds.

    A step with n running responses takes `step_s` + n x `step_per_response_s`, and gives each
    one token. The times hold for `tensor_parallel` devices; on d times as many they are divided
    by d to the power of `tensor_parallel_exponent`, and the KV cache holds d times as much.
    """

    prefill_s: Seconds = Field(default=0.05, description="Prefill of a request, constant part.")
    prefill_per_token_s: Seconds = Field(
        default=2e-5, description="Prefill per token of the prompt (and of a resumed response)."
    )
    step_s: float = Field(default=0.010, gt=0, description="A decoding step, constant part.")
    step_per_response_s: Seconds = Field(
        default=2e-4, description="A decoding step, per response that runs."
    )
    kv_cache_tokens: Count = Field(
        default=400_000, description="Tokens (prompt and response) that a replica's cache holds."
    )
    tensor_parallel: Count = Field(
        default=1, description="Devices of a replica for which the figures above hold."
    )
    tensor_parallel_exponent: Ratio = Field(
        default=0.77, description="0.77: twice the devices, 1.7 times the speed."
    )


class Training(Section):
    """One update (mini-batch), and the log-probabilities of a batch, on all trainer devices.

    An update takes `fixed_s` + m x `per_micro_batch_s` + tokens x `device_s_per_token` /
    devices to the power of `scaling_exponent`, where m is the number of micro-batches that a
    device makes of its share under verl's token budget.
    """

    fixed_s: Seconds = Field(default=1.0, description="An update, constant part.")
    per_micro_batch_s: Seconds = Field(default=0.05, description="Per micro-batch of a device.")
    device_s_per_token: Seconds = Field(
        default=3e-5, description="Device-seconds per token (prompt and response) of an update."
    )
    log_prob_device_s_per_token: Seconds = Field(
        default=1e-5, description="Device-seconds per token of log-probabilities."
    )
    scaling_exponent: Ratio = Field(
        default=1.0, description="1: time falls in proportion to devices; 0: not at all."
    )


class Transfers(Section):
    """Moving weights and memory, and saving."""

    sync_s: Seconds = Field(default=2.0, description="Weights to the standalone replicas.")
    hybrid_sync_s: Seconds = Field(default=1.0, description="Weights to the hybrid replicas.")
    abort_s: Seconds = Field(
        default=0.02, description="From the closing of a replica's gate to the abort of what runs."
    )
    sleep_s: Seconds = Field(default=1.0, description="A hybrid replica frees its memory.")
    wake_s: Seconds = Field(default=1.0, description="A hybrid replica takes its memory back.")
    checkpoint_s: Seconds = Field(default=10.0, description="Saving a checkpoint.")


class Emulated(Section):
    """What the devices of `device: emulated` cost, and how fast time passes."""

    time_scale: float = Field(
        default=0.1, gt=0, le=10, description="Real seconds that an emulated second takes."
    )
    seed: int = Field(default=0, description="Chooses the response lengths.")
    prompt_tokens: Count | None = Field(
        default=None,
        description="Tokens of each prompt of `data: example`, beside the chat template's.",
    )
    lengths: Lengths = Field(default=Lengths(), description="Response lengths.")
    generation: Generation = Field(default=Generation(), description="Cost of generation.")
    training: Training = Field(default=Training(), description="Cost of training.")
    transfers: Transfers = Field(default=Transfers(), description="Weight syncs, switches, saving.")

"""What a run is: the typed form of the YAML given to `rlinsight run --profile`.

Reading the file, and the wording of its errors, is `rlinsight.runs.profile`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from rlinsight.runs.emulated.cost import Emulated
from rlinsight.runs.section import Section

Mode = Literal["sync", "colocate_async", "separate_async", "fully_async"]
DeviceName = Literal["cuda", "npu", "cpu", "emulated"]

#: Modes whose rollouts have devices of their own, apart from the trainer's.
DISAGGREGATED: Final[frozenset[Mode]] = frozenset({"separate_async", "fully_async"})

#: The word that stands for the model and data set that rlinsight generates.
EXAMPLE: Final = "example"

DEFAULT_TRACE: Final = "runs/{name}-{time}"
_TRACE_FIELDS: Final = frozenset({"name", "time", "mode"})
_PLACEHOLDER = re.compile(r"{([^{}]*)}")

#: Stages of a training rank, under the names verl's profiler has for them.
KernelRole = Literal["actor_update", "actor_compute_log_prob", "ref_compute_log_prob"]
KernelTool = Literal["torch", "nsys", "npu"]

#: A value that Hydra takes; lists and mappings nest.
OverrideValue = None | bool | int | float | str | list[Any] | dict[str, Any]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Positive = Annotated[int, Field(ge=1)]


class Data(Section):
    """The data sets, in verl's parquet form."""

    train: str | list[str] = Field(description="Training file or files.")
    val: str | list[str] = Field(description="Validation file or files.")

    def files(self) -> list[str]:
        """Return all files, training first."""
        return [*_as_list(self.train), *_as_list(self.val)]


class Pool(Section):
    """The devices of one pool: nodes x devices per node."""

    nodes: Positive = Field(default=1, description="Nodes of the pool.")
    devices_per_node: Positive = Field(default=1, description="Devices on each node.")

    @property
    def devices(self) -> int:
        """Devices of the pool."""
        return self.nodes * self.devices_per_node


class Resources(Section):
    """Who gets which share of the job's devices."""

    nodes: Positive | None = Field(
        default=None,
        description="Nodes of the whole job; must be the sum of both pools. Default: the sum.",
    )
    trainer: Pool = Field(default=Pool(), description="Devices that train.")
    rollout: Pool | None = Field(
        default=None,
        description="Devices that only generate (separate_async and fully_async).",
    )

    @property
    def total_nodes(self) -> int:
        """Trainer nodes + rollout nodes."""
        return self.trainer.nodes + (self.rollout.nodes if self.rollout else 0)

    @property
    def total_devices(self) -> int:
        """Trainer devices + rollout devices."""
        return self.trainer.devices + (self.rollout.devices if self.rollout else 0)


class Collectors(Section):
    """What is recorded, and how often."""

    sample_interval_s: float = Field(
        default=1.0,
        ge=0.05,
        le=60,
        description="Seconds between two samples of devices and of the gauges of engines.",
    )
    disable: list[str] = Field(
        default=[],
        description="Hooks to leave out, by the names `rlinsight doctor --json` lists; `devices`: "
        "no sampling of devices.",
    )


class KernelWindow(Section):
    """Steps of which every kernel is recorded, by verl's own profiler and without stacks."""

    steps: list[Positive] = Field(
        min_length=1, description="Steps to profile (fully_async: parameter versions)."
    )
    roles: list[KernelRole] = Field(
        default=["actor_update"], min_length=1, description="Stages to profile."
    )
    ranks: list[Annotated[int, Field(ge=0)]] = Field(
        default=[0], min_length=1, description="Trainer ranks to profile."
    )
    max_seconds: float = Field(
        default=20.0,
        gt=0,
        description="Seconds collected of a stage at most, and waited for its file at most.",
    )
    tool: KernelTool | None = Field(
        default=None, description="Profiler. Default: npu on NPUs, torch elsewhere."
    )


class Profile(Section):
    """What is looked at more closely, for some steps only."""

    kernel: KernelWindow | None = Field(default=None, description="Kernel-level windows.")


class RecordingConfig(Section):
    """The part that concerns recording: enough to wrap a command of your own."""

    name: Name = Field(default="run", description="Name of the run, part of the trace's path.")
    mode: Mode | None = Field(default=None, description="How trainer and rollouts take turns.")
    device: DeviceName = Field(default="cuda", description="Kind of accelerator.")
    environment: dict[str, str] = Field(
        default={}, description="Environment variables added for the run."
    )
    trace: str = Field(
        default=DEFAULT_TRACE,
        description="Trace folder or fsspec URL; {name}, {mode} and {time} are filled in.",
    )
    collectors: Collectors = Field(default=Collectors(), description="Collectors and rates.")
    stall_report_s: float = Field(
        default=300.0, gt=0, description="Seconds without any event after which a stall is shown."
    )
    stall_timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="Seconds without any event that end the run. Default: never.",
    )
    ray_address: str | None = Field(
        default=None,
        description="Submit as a job to this Ray cluster, e.g. http://head:8265.",
    )

    @field_validator("environment", mode="before")
    @classmethod
    def _environment_as_text(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {str(k): _environment_value(v) for k, v in value.items()}

    @field_validator("trace")
    @classmethod
    def _known_placeholders(cls, value: str) -> str:
        unknown = set(_PLACEHOLDER.findall(value)) - _TRACE_FIELDS
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in sorted(_TRACE_FIELDS))
            raise ValueError(f"unknown placeholder `{{{min(unknown)}}}`; known are {known}")
        try:
            value.format(**dict.fromkeys(_TRACE_FIELDS, "x"))
        except (ValueError, IndexError, KeyError) as error:
            raise ValueError(f"`{value}` cannot be filled in: {error}") from None
        return value


class RunConfig(RecordingConfig):
    """A managed verl run."""

    mode: Mode = Field(description="How trainer and rollouts take turns.")
    model: str = Field(description="Model folder or hub id, or `example`.")
    data: Data | Literal["example"] = Field(description="Data sets, or `example`.")
    resources: Resources = Field(default=Resources(), description="Devices of each pool.")
    steps: Positive | None = Field(
        default=None,
        description="Training steps (fully_async: parameter versions). Default: verl's own.",
    )
    overrides: dict[str, OverrideValue] = Field(
        default={},
        description="Hydra overrides for verl; they win over what `device` sets.",
    )
    entry: str | None = Field(
        default=None, description="Python module to start. Default: verl's for the mode."
    )
    emulated: Emulated = Field(
        default=Emulated(), description="What devices of `device: emulated` cost."
    )
    profile: Profile = Field(
        default=Profile(), description="What is looked at more closely, for some steps only."
    )
    smoke: bool = Field(
        default=False, description="Plumbing check: 8 prompts x 4 responses, at most 3 steps."
    )

    @model_validator(mode="after")
    def _costs_of_emulated_devices_only(self) -> RunConfig:
        if self.device != "emulated" and "emulated" in self.model_fields_set:
            raise ValueError(
                f"`emulated` is the cost of emulated devices, found `device: {self.device}`; "
                "remove the section or set `device: emulated`"
            )
        if self.emulated.prompt_tokens is not None and self.data != EXAMPLE:
            raise ValueError(
                "`emulated.prompt_tokens` is for `data: example`; the prompts of a data set of "
                "your own are as long as they are"
            )
        return self

    @model_validator(mode="after")
    def _rollout_pool_fits_the_mode(self) -> RunConfig:
        needed = self.mode in DISAGGREGATED
        if needed and self.resources.rollout is None:
            raise ValueError(f"is required and missing: {self.mode} needs rollout devices")
        if not needed and self.resources.rollout is not None:
            raise ValueError(
                f"must be left out: {self.mode} generates on the trainer's devices; "
                "separate_async and fully_async have rollout devices"
            )
        return self


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a run's YAML (draft 2020-12)."""
    schema = RunConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "rlinsight run"
    return schema


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _environment_value(value: Any) -> Any:
    # YAML reads 1, 0.5 and true as numbers and booleans; a shell would not.
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value) if isinstance(value, (int, float)) else value

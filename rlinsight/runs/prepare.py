"""From a configuration to a plan that has passed preflight."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlinsight.runs import plan as plans
from rlinsight.runs import preflight
from rlinsight.runs.checks.cluster import running_cluster
from rlinsight.runs.config import EXAMPLE, RecordingConfig, RunConfig
from rlinsight.runs.kernel_window import estimated_bytes
from rlinsight.runs.location import Location, locate
from rlinsight.runs.plan import Plan, Platform
from rlinsight.runs.settings import Settings
from rlinsight.runs.verl_args import samples_per_version


@dataclass(frozen=True)
class Prepared:
    """A run that may start: what, where, and what preflight had to say."""

    config: RecordingConfig
    plan: Plan
    location: Location
    settings: Settings
    findings: list[preflight.Finding]
    scratch: list[Path] = field(default_factory=list)

    def clean_up(self) -> None:
        """Remove the generated example, if there was one."""
        for folder in self.scratch:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def is_smoke(self) -> bool:
        """Whether this is a plumbing check."""
        return isinstance(self.config, RunConfig) and self.config.smoke

    @property
    def kernel_bytes(self) -> int:
        """Expected size of the profiles of kernel windows, 0 without any."""
        if not isinstance(self.config, RunConfig) or self.plan.module is None:
            return 0
        return estimated_bytes(self.config, self.settings.number)

    @property
    def total_steps(self) -> int | None:
        """Training steps of the whole run, None where nobody says."""
        if not isinstance(self.config, RunConfig) or self.plan.module is None:
            return None
        if self.config.mode != "fully_async":
            return self.settings.number("trainer.total_training_steps")
        prompts = self.settings.number("rollout.total_rollout_steps")
        return None if prompts is None else prompts // samples_per_version(self.settings)


def prepare(config: RecordingConfig, command: Sequence[str] = ()) -> Prepared:
    """Plan the verl run that `config` describes, or the recording of `command`.

    Runs every preflight check; nothing is started, and only generated example data is written.
    """
    run_id = f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    location = locate(config, run_id)
    scratch: list[Path] = []
    if command:
        plan = plans.wrapped(config, command, run_id=run_id, trace=location.folder)
    else:
        assert isinstance(config, RunConfig)
        platform = _with_example(config, _platform(config), run_id, scratch)
        plan = plans.managed(config, run_id=run_id, trace=location.folder, platform=platform)
    facts = preflight.facts_of(config, plan, location.url)
    found = preflight.findings(facts)
    return Prepared(config, plan, location, facts.settings, found, scratch)


def _platform(config: RunConfig) -> Platform:
    """Return what the device adds; accelerators need nothing."""
    if config.device not in {"cpu", "emulated"}:
        return Platform()
    joins = config.ray_address or running_cluster({**os.environ, **config.environment})
    if config.device == "emulated":
        from rlinsight.runs.emulated import launch as emulated

        return Platform(emulated.environment(config), emulated.overrides(config, joins=joins))
    from rlinsight.runs.cpu import launch as cpu

    resources = config.resources
    overrides = cpu.overrides(
        config.mode,
        trainer_devices=resources.trainer.devices,
        rollout_devices=resources.rollout.devices if resources.rollout else 0,
        start_ray=joins is None,
    )
    return Platform(cpu.environment(secrets.token_hex(32)), overrides)


def _with_example(
    config: RunConfig, platform: Platform, run_id: str, scratch: list[Path]
) -> Platform:
    """Generate the example model and data where the configuration asks for them."""
    if EXAMPLE not in (config.model, config.data):
        return platform
    from rlinsight.runs.cpu.example import generate

    folder = Path(tempfile.gettempdir()) / f"rlinsight-example-{run_id}"
    scratch.append(folder)
    emulated = config.emulated if config.device == "emulated" else None
    example = generate(folder, prompt_characters=(emulated and emulated.prompt_tokens) or 0)
    extra = example.model_overrides() if config.model == EXAMPLE else []
    extra = extra + (example.data_overrides() if config.data == EXAMPLE else [])
    return Platform(platform.environment, [*platform.overrides, *extra])

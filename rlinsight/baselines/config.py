"""`check.yaml`: what a team changes about how `rlinsight check` judges."""

from __future__ import annotations

import difflib
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from rlinsight.errors import ConfigError

Share = Annotated[float, Field(ge=0)]
Better = Literal["higher", "lower", "either"]


class _Section(BaseModel):
    """A mapping of the file; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MetricConfig(_Section):
    """Settings of the metrics that a name matches; what is left out keeps its default."""

    relative: Share | None = Field(
        default=None, description="Half-width of the corridor as a share of the reference."
    )
    absolute: Share | None = Field(
        default=None, description="Least half-width of the corridor, in the metric's unit."
    )
    better: Better | None = Field(
        default=None, description="The good direction; `either`: any change is a bad one."
    )
    gates: bool | None = Field(default=None, description="Whether it may fail the build.")
    match_length: bool | None = Field(
        default=None, description="Whether runs are compared at the same response length."
    )
    skip: bool | None = Field(default=None, description="Leave it out. Default: false.")


class AcknowledgedConfig(_Section):
    """A change that is known and accepted for a while."""

    metric: str = Field(description="Name or pattern of the metrics.")
    reason: Annotated[str, Field(min_length=1)] = Field(description="Why it is accepted.")
    until: date = Field(description="The last day on which it is accepted, YYYY-MM-DD.")
    up_to: Share | None = Field(
        default=None, description="The largest accepted relative change. Default: any."
    )


class CheckConfig(_Section):
    """The whole file; every key may be left out."""

    baseline: str | None = Field(
        default=None, description="Folder or fsspec URL, where `--baseline` is not given."
    )
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = Field(
        default=0.01, description="Chance of a false alarm per check, over all metrics."
    )
    correction: Literal["bh", "holm", "none"] = Field(
        default="bh", description="How p-values are corrected for the number of metrics."
    )
    history: Annotated[int, Field(ge=1)] = Field(
        default=10, description="How many trusted runs make the reference, the latest first."
    )
    min_windows: Annotated[int, Field(ge=2)] = Field(
        default=4, description="The fewest steady windows that can be judged."
    )
    run_to_run: Share = Field(
        default=0.2,
        description="Spread between equal runs assumed at first, as a share of the corridor.",
    )
    max_extrapolation: Share = Field(
        default=0.1,
        description="How far beyond the baseline's response lengths runs can be matched, as a "
        "share of their mean.",
    )
    shadow: bool = Field(default=False, description="Report, and let the build pass.")
    ignore: list[str] = Field(
        default=[], description="Keys of the identity (patterns) that may differ."
    )
    metrics: dict[str, MetricConfig] = Field(
        default={}, description="Settings by name or pattern; later ones win."
    )
    acknowledged: list[AcknowledgedConfig] = Field(
        default=[], description="Changes that are known and accepted."
    )


def load(path: str | Path | None) -> CheckConfig:
    """Return the configuration at `path`, the defaults without one. Raises ConfigError."""
    if path is None:
        return CheckConfig()
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"`{path}` cannot be read: {reason.lower()}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"`{path}` is not YAML: it is not text in UTF-8") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"`{path}` is not YAML: {' '.join(str(error).split())}") from error
    if document is not None and not isinstance(document, dict):
        raise ConfigError(f"`{path}` must hold a mapping, found a {type(document).__name__}")
    try:
        return CheckConfig.model_validate(document or {})
    except ValidationError as error:
        lines = [f"  {_path(p)}: {_sentence(p)}" for p in error.errors(include_url=False)]
        raise ConfigError("\n".join([f"`{path}` cannot be used:", *lines])) from None


def _path(problem: ErrorDetails) -> str:
    return ".".join(map(str, problem["loc"]))


def _sentence(problem: ErrorDetails) -> str:
    if problem["type"] != "extra_forbidden":
        return f"{problem['msg'][0].lower()}{problem['msg'][1:]}, found {problem['input']!r}"
    *parents, key = map(str, problem["loc"])
    known: dict[str, Any] = {
        "metrics": MetricConfig.model_fields,
        "acknowledged": AcknowledgedConfig.model_fields,
    }.get(parents[0] if parents else "", CheckConfig.model_fields)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
    return f"unknown key; {hint}"

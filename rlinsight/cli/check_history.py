"""The trend of a baseline, which `rlinsight check --history` writes."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from rlinsight.cli.files import write
from rlinsight.cli.shell import opening
from rlinsight.errors import ConfigError, RlinsightError

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.observation import Observation
    from rlinsight.analyzers.gate.result import CheckResult
    from rlinsight.analyzers.gate.trend import Trend
    from rlinsight.baselines.config import CheckConfig

HISTORY_SCHEMA_VERSION: Final = 1


def history(
    place: str, config: CheckConfig, run: Observation | None, result: CheckResult | None
) -> str:
    """Return the page; where the baseline itself cannot be read, one that says so."""
    from rlinsight.report.check.history import history_page

    title = f"rlinsight check: {place}"
    try:
        found = _trends(place, config, run, result)
    except RlinsightError:
        if result is None:
            raise
        return history_page([], title, result)
    return history_page(found, title, result)


def only_history(place: str, config: CheckConfig, path: Path | None, *, as_json: bool) -> None:
    """Write the trend of the accepted runs, without a run under check."""
    if path is None:
        raise ConfigError("nothing to check: give a trace, or `--history PATH` for the trend alone")
    write(path, history(place, config, None, None))
    if as_json:
        document = _document(place, path, _trends(place, config, None, None))
        typer.echo(json_module.dumps(document, indent=1, allow_nan=False))
        return
    typer.echo(f"wrote the trend of {place}\nnext: {opening(path)}")


def _trends(
    place: str, config: CheckConfig, run: Observation | None, result: CheckResult | None
) -> list[Trend]:
    from rlinsight.analyzers.gate.trend import Kept, trends
    from rlinsight.baselines.store import Store
    from rlinsight.cli.gating import settings_of, stored_observation

    kept = [
        Kept(r.name, stored_observation(r), "trusted" if r.trusted else "untrusted")
        for r in Store(place).records()
    ]
    if run is not None:
        kept.append(Kept(f"{run.run_id or 'figures'} (checked)", run, "checked"))
    return trends(kept, settings_of(config), result)


def _document(place: str, path: Path, found: list[Trend]) -> dict[str, Any]:
    return {
        "schema_version": HISTORY_SCHEMA_VERSION,
        "baseline": place,
        "written": str(path),
        "trends": [asdict(trend) for trend in found],
    }

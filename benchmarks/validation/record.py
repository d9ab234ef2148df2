"""Record the runs that the simulator is held against: those of `settings.yaml`.

    python benchmarks/validation/record.py                  all that are not recorded yet
    python benchmarks/validation/record.py NAME...          these, recorded or not
    python benchmarks/validation/record.py --traces DIR ... keeps the traces there, to look into
    python benchmarks/validation/record.py --traces DIR --measure  measures them anew, without runs

One after the other, about two minutes each. What is kept of a run is `measured/NAME.json`: its
setting, its figures over whole versions, what lowers the trust in them, and of a run that
calibrates, its calibration. The last version is left out: rollouts run out of prompts in it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

import rlinsight
from rlinsight.analyzers.simulate import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs, knobs_of_run
from rlinsight.analyzers.simulate.reproduce import recorded, whole_versions

HERE = Path(__file__).parent
MEASURED = HERE / "measured"
CLI = Path(sysconfig.get_path("scripts")) / "rlinsight"


def settings() -> dict[str, Any]:
    """Return profiles and runs."""
    found: dict[str, Any] = yaml.safe_load((HERE / "settings.yaml").read_text(encoding="utf-8"))
    return found


def profile_of(name: str) -> dict[str, Any]:
    """Return the run configuration of a run: its profile, changed."""
    found = settings()
    change = found["runs"][name]
    profile: dict[str, Any] = {"name": f"validation-{name}", **found["profiles"][change["profile"]]}
    for part in ("resources", "overrides", "emulated"):
        if part in profile:
            profile[part] = profile[part] | change.get(part, {})
    return profile | ({"steps": change["steps"]} if "steps" in change else {})


def record(name: str, traces: Path) -> bool:
    """Run one setting and keep what was measured; say whether the run ended well."""
    trace, profile = traces / name, traces / f"{name}.yaml"
    shutil.rmtree(trace, ignore_errors=True)  # what an interrupted recording left
    traces.mkdir(parents=True, exist_ok=True)
    profile.write_text(yaml.safe_dump(profile_of(name)), encoding="utf-8")
    arguments = ["run", "--profile", str(profile), "--trace", str(trace)]
    if subprocess.run([CLI, *arguments], cwd=traces, check=False).returncode:
        sys.stdout.write(f"{name}: the run failed; it is tried again with the next recording\n")
        return False
    keep(name, trace)
    return True


def keep(name: str, trace: Path) -> None:
    """Write `measured/NAME.json` from a trace."""
    opened = rlinsight.open(trace)
    window, warm_up, versions = whole_versions(opened.analyze())
    report = opened.analyze(window=window)
    knobs = knobs_of_run(opened.mode, opened.manifest.config, opened.topology)
    change = settings()["runs"][name]
    kept = {
        "run": name,
        "profile": change["profile"],
        "knobs": asdict(with_work(knobs, change)),
        "warm_up_versions": warm_up,
        "versions": versions,
        "recorded": asdict(recorded(report)),
        "doubts": list(emulation.doubts) if (emulation := opened.analyze().trust.emulation) else [],
        "calibration": Calibration.from_report(opened, report).to_dict()
        if calibrates(name)
        else None,
    }
    MEASURED.mkdir(exist_ok=True)
    (MEASURED / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def calibrates(name: str) -> bool:
    """Whether a run is the one of its profile from which the others are predicted."""
    return bool(settings()["runs"][name]["profile"] == name)


def with_work(knobs: Knobs, change: dict[str, Any]) -> Knobs:
    """Return the setting with the properties of the work that a run names."""
    return knobs.changed(change.get("work", {}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--traces", type=Path, help="keep the traces in this folder")
    parser.add_argument(
        "--measure", action="store_true", help="record nothing, measure the traces kept there anew"
    )
    chosen = parser.parse_args()
    names = chosen.names or missing()
    if chosen.measure:
        if chosen.traces is None:
            parser.error("expected `--traces DIR` with `--measure`")
        for name in chosen.names or [n for n in settings()["runs"] if (chosen.traces / n).exists()]:
            keep(name, chosen.traces / name)
        return 0
    with tempfile.TemporaryDirectory(prefix="rlinsight-") as scratch:
        traces = (chosen.traces or Path(scratch)).resolve()
        failed = [name for name in names if not record(name, traces)]
    return 1 if failed else 0


def missing() -> list[str]:
    """Return the runs that were not recorded yet, in the order of the settings."""
    return [name for name in settings()["runs"] if not (MEASURED / f"{name}.json").exists()]


if __name__ == "__main__":
    raise SystemExit(main())

"""Record the sample traces again: real verl runs on this machine's CPU.

    python sample_traces/record.py                      one run per mode, from `examples/`
    python sample_traces/record.py sync                 one of them
    python sample_traces/record.py provoked             the runs of `provoked.yaml`
    python sample_traces/record.py provoked/long_tail   one of them

The recordings keep no path of the machine they were made on.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml
from throttle import throttled

import rlinsight
from rlinsight.trace.validate import validate

HERE = Path(__file__).parent
CLI = Path(sysconfig.get_path("scripts")) / "rlinsight"
MODES = ("sync", "colocate_async", "separate_async", "fully_async")
MAX_BYTES = 2_000_000


def record(name: str) -> None:
    """Record `name`, a mode or `provoked/KIND`, and keep the compacted trace."""
    with tempfile.TemporaryDirectory(prefix="rlinsight-") as scratch:
        trace = Path(scratch) / Path(name).name
        profile = Path(scratch) / "profile.yaml"
        kind = name.removeprefix("provoked/")
        change = {"base": name} if kind == name else provoked()[kind]
        profile.write_text(yaml.safe_dump(profile_of(change)))
        slow = change.get("throttled")
        with throttled(trace, **slow) if slow else nullcontext():
            cli("run", "--profile", str(profile), "--trace", str(trace), cwd=scratch)
        require_valid(trace)
        keep(trace, HERE / name, scratch)


def provoked() -> dict[str, dict[str, Any]]:
    """Return the runs with one deliberate fault each, by kind."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "provoked.yaml").read_text())
    return found


def profile_of(change: dict[str, Any]) -> dict[str, Any]:
    """Return the example that `change` is based on, changed."""
    example = HERE.parent / "examples" / f"{change['base']}.yaml"
    config: dict[str, Any] = yaml.safe_load(example.read_text())
    config["overrides"] |= change.get("overrides", {})
    return config | {key: change[key] for key in ("resources", "steps") if key in change}


def cli(*arguments: str, cwd: str) -> None:
    """Run the command line; a failed run ends the recording."""
    subprocess.run([CLI, *arguments], check=True, cwd=cwd)


def require_valid(trace: Path) -> None:
    """End the recording for any finding but the time in hooks, which a busy machine stretches."""
    for finding in validate(rlinsight.open(trace)).findings:
        sys.stdout.write(f"{finding.kind}: {finding.message}\n")
        if finding.kind != "hook_overhead":
            raise SystemExit(1)


def keep(trace: Path, target: Path, scratch: str) -> None:
    """Copy tables and manifest; paths of this machine become placeholders."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for table in trace.glob("*.arrow"):
        shutil.copy(table, target)
    manifest = (trace / "manifest.json").read_text()
    places = {
        scratch: "<scratch>",
        str(HERE.parent): "<repository>",
        sys.prefix: "<venv>",
        sys.base_prefix: "<python>",
        str(Path.home()): "<home>",
        tempfile.gettempdir(): "<tmp>",
    }
    for place in sorted(places, key=len, reverse=True):
        manifest = manifest.replace(place, places[place])
    (target / "manifest.json").write_text(manifest)
    size = sum(file.stat().st_size for file in target.iterdir())
    if size > MAX_BYTES:
        raise SystemExit(f"{target.name}: {size} bytes are more than the {MAX_BYTES} allowed")
    sys.stdout.write(f"{target.name}: {size / 1e6:.2f} MB\n")


def main(names: list[str]) -> None:
    """Record what is named, one after the other."""
    for name in names or MODES:
        for one in [f"provoked/{kind}" for kind in provoked()] if name == "provoked" else [name]:
            record(one)


if __name__ == "__main__":
    main(sys.argv[1:])

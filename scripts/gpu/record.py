"""Record the GPU runs of `examples/gpu/`, and run them without recording beside it.

    python scripts/gpu/record.py sync colocate_async      record; keep sample_traces/gpu_*
    python scripts/gpu/record.py --bare sync               the same training, nothing recorded
    python scripts/gpu/record.py --out DIR --devices 1 sync

Each run is bounded by `--limit` seconds. What is kept names no path of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CLI = (sys.executable, "-c", "from rlinsight.cli import main; main()")
METRICS = "verl-metrics.jsonl"
MAX_BYTES = 3_000_000
#: Not the repository: its folder `rlinsight` would be taken for the installed package.
_WORK = Path("/tmp/rlinsight")  # noqa: S108
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GRACE_S = 40


def main() -> int:
    """Run each profile in turn; return the number of runs that failed."""
    options = _parser().parse_args()
    failed = 0
    _WORK.mkdir(parents=True, exist_ok=True)
    _generate_example(_WORK / "example")
    for name in options.profiles:
        began = time.monotonic()
        environment = _environment(options.devices)
        run = bare if options.bare else record
        code = run(_profile(name), options.out, environment, options.limit)
        failed += code != 0
        print(f"{name}: exit code {code} after {time.monotonic() - began:.1f} s", flush=True)
    return failed


def record(profile: Path, out: Path, environment: Mapping[str, str], limit_s: float) -> int:
    """Record one run and keep its compacted trace in `out`."""
    trace = _fresh(profile)
    command = [*CLI, "run", "--profile", str(profile), "--trace", str(trace)]
    code = _bounded(command, environment, limit_s)
    keep(trace, out / f"gpu_{profile.stem}")
    return code


def bare(profile: Path, out: Path, environment: Mapping[str, str], limit_s: float) -> int:
    """Run the same training without any of our collectors; keep what verl logged."""
    trace = _fresh(profile)
    trace.mkdir(parents=True)
    command = [*CLI, "run", "--profile", str(profile), "--trace", str(trace / "t")]
    command = [*command, "--check", "--json"]
    shown = subprocess.run(
        command, env=environment, cwd=_WORK, capture_output=True, text=True, check=True
    )
    ours = ("env_vars.", "profiler")
    arguments = json.loads(shown.stdout)["command"]
    arguments = [a for a in arguments if not any(part in a.split("=")[0] for part in ours)]
    environment = {**environment, "VERL_FILE_LOGGER_PATH": str(trace / METRICS)}
    with (trace / "console.log").open("wb") as console:
        code = _bounded(arguments, environment, limit_s, console)
    target = out / f"bare_{profile.stem}_{int(time.time())}"
    target.mkdir(parents=True)
    for name in (METRICS, "console.log"):
        if (trace / name).exists():
            shutil.copy(trace / name, target)
    return code


def keep(trace: Path, target: Path) -> None:
    """Copy tables and manifest, in which paths and serials become placeholders."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for table in trace.glob("*.arrow"):
        shutil.copy(table, target)
    if (trace / "manifest.json").exists():
        (target / "manifest.json").write_text(_without_paths((trace / "manifest.json").read_text()))
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"{target.name}: {size / 1e6:.2f} MB; console and profiles in {trace}", flush=True)
    if size > MAX_BYTES:
        print(f"{target.name}: more than the {MAX_BYTES / 1e6:.0f} MB a sample may have")


def _without_paths(text: str) -> str:
    places = {
        os.environ.get("SITE", "<none>"): "<site>",
        str(REPOSITORY): "<repository>",
        sys.prefix: "<venv>",
        sys.base_prefix: "<python>",
        f"{Path.home()}/": "<home>/",
        "/tmp/": "<tmp>/",  # noqa: S108 - a text to replace
    }
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, places[place])
    seen: dict[str, str] = {}
    for uuid in dict.fromkeys(_UUID.findall(text)):
        seen[uuid] = f"GPU-{len(seen):08}-0000-0000-0000-000000000000"
    return _UUID.sub(lambda match: seen[match[0]], text)


def _bounded(
    command: list[str], environment: Mapping[str, str], limit_s: float, output: object = None
) -> int:
    """Run within `limit_s` seconds; a run that takes longer is told to end, then killed."""
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=_WORK,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        return process.wait(_GRACE_S) or 1
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return 137


def _generate_example(folder: Path) -> None:
    """Write the model and data of the profiles, unless they are there."""
    if (folder / "model" / "model.safetensors").exists():
        return
    options = ["--size", "0.6b", "--mean-length", "640"]
    command = [sys.executable, "-m", "rlinsight.runs.cpu.example", str(folder), *options]
    subprocess.run(command, cwd=_WORK, check=True)


def _environment(devices: str | None) -> dict[str, str]:
    visible = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    # Two runs side by side must not find each other's cluster.
    own = {} if devices is None else {"RAY_TMPDIR": str(_WORK / f"ray{devices}")}
    for folder in own.values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    return {**os.environ, **visible, **own}


def _fresh(profile: Path) -> Path:
    trace = _WORK / "runs" / f"{profile.stem}-{time.time_ns()}"
    trace.parent.mkdir(parents=True, exist_ok=True)
    return trace


def _profile(name: str) -> Path:
    path = Path(name)
    return path if path.suffix == ".yaml" else REPOSITORY / "examples/gpu" / f"{name}.yaml"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("profiles", nargs="+", help="names in examples/gpu, or YAML files")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "sample_traces")
    parser.add_argument("--bare", action="store_true", help="without recording")
    parser.add_argument("--devices", help="CUDA_VISIBLE_DEVICES of the runs")
    parser.add_argument("--limit", type=float, default=900, help="seconds a run may take")
    return parser


if __name__ == "__main__":
    sys.exit(main())

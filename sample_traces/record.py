"""Record the sample traces again: one real verl run per mode on this machine's CPU.

Run by `make record-samples`. The recordings keep no path of the machine they were made on.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
MODES = ("sync", "colocate_async", "separate_async", "fully_async")
MAX_BYTES = 2_000_000


def record(mode: str) -> None:
    """Record `mode` with its example configuration and keep the compacted trace."""
    with tempfile.TemporaryDirectory(prefix="rlinsight-") as scratch:
        trace = Path(scratch) / mode
        profile = HERE.parent / "examples" / f"{mode}.yaml"
        command = ["rlinsight", "run", "--profile", str(profile), "--trace", str(trace)]
        subprocess.run(
            [f"{sysconfig.get_path('scripts')}/{command[0]}", *command[1:]], check=True, cwd=scratch
        )
        subprocess.run(
            [f"{sysconfig.get_path('scripts')}/rlinsight", "validate", str(trace)], check=True
        )
        keep(trace, HERE / mode, scratch)


def keep(trace: Path, target: Path, scratch: str) -> None:
    """Copy tables and manifest; paths of this machine become placeholders."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
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


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MODES:
        record(chosen)

"""Write what the analysis says of the sample traces; the tests expect it from then on."""

from __future__ import annotations

import json
from pathlib import Path

import rlinsight

for manifest in sorted((Path(__file__).parent.parent / "sample_traces").glob("*/manifest.json")):
    report = rlinsight.open(manifest.parent).analyze().to_dict()
    (manifest.parent / "golden.json").write_text(
        json.dumps(report, indent=1, sort_keys=True) + "\n"
    )

"""The pictures of the README, from the sample traces: python scripts/screenshots.py docs/images"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rlinsight.webapp.export import write_view

SAMPLES: Final = Path(__file__).parent.parent / "sample_traces"
VIEWS: Final = {
    "overview": "/overview?run=fully_async",
    "timeline": "/timeline?run=fully_async&from=176&to=216",
}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, address in VIEWS.items():
        write_view(SAMPLES, address, folder / f"{name}.png", most_px=920)

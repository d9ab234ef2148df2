"""Write the catalogue of rules in docs/advisor.md from the rules themselves (`make docs`)."""

from __future__ import annotations

import sys
from pathlib import Path

from rlinsight.analyzers.advise import RULES
from rlinsight.report.advise.lines import catalogue

BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"


#: Words in the names of rules that need one.
GLOSSES = {
    "broken_scaffold": "The scaffold is what surrounds the model: environment, tools, reward."
}


def rules() -> str:
    """Return the catalogue, in the order of the tiers."""
    parts = []
    for rule in sorted(RULES, key=lambda rule: rule.tier):
        gloss = f"{GLOSSES[rule.name]}\n\n" if rule.name in GLOSSES else ""
        lines = "\n".join(f"* **{name}**: {text}" for name, text in catalogue(rule))
        parts.append(f"### {rule.name}\n\n{gloss}{lines}\n")
    return "\n".join(parts)


def written(page: str) -> str:
    """Return the page with the catalogue between its marks."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{rules()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")

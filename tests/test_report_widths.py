"""Tables in a narrow terminal: no number is cut, no name loses its end."""

from __future__ import annotations

import io
import re
from collections import Counter

import pytest
from gating import SAMPLES
from rich.console import Console
from typer.testing import CliRunner

from rlinsight.cli import app
from rlinsight.report.section import Section
from rlinsight.report.text import print_section
from rlinsight.report.widths import GAP, widths

FULLY_ASYNC = str(SAMPLES / "fully_async")
COMMANDS = {
    "analyze": ("analyze", FULLY_ASYNC),
    "whatif": ("whatif", FULLY_ASYNC, "--sweep", "staleness_threshold=0,0.5", "--seeds", "2",
               "--versions", "6"),
    "compare": ("compare", str(SAMPLES / "sync"), FULLY_ASYNC),
}  # fmt: skip


def shown(columns: int, *command: str) -> str:
    result = CliRunner().invoke(app, list(command), env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output


def numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"(?<!\S)[-+±\[]*\d[\d.,]*(?=[\s\],%]|$)", text, re.MULTILINE))


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("columns", [60, 80, 100])
def test_no_number_is_lost_and_nothing_is_elided(command, columns):
    narrow, wide = shown(columns, *command), shown(1000, *command)
    assert "…" not in narrow
    assert numbers(wide) <= numbers(narrow)


def test_the_names_of_causes_are_whole_at_eighty_columns():
    text = shown(80, "analyze", FULLY_ASYNC)
    for name in ("wait_samples", "weight_sync_wait", "mini-batches", "bubble.staleness_quota"):
        assert re.search(rf"(^| ){name}( |$)", text, re.MULTILINE), name
    assert "the trainer waits for the last long" not in text
    assert "the trainer waits for the last long" in shown(160, "analyze", FULLY_ASYNC)


def printed(section: Section, columns: int) -> str:
    console = Console(width=columns, file=io.StringIO())
    print_section(section, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_prose_wraps_before_headings_and_names():
    columns = [["cause", "wait_samples"], ["share of pool", "28.7 %"], ["meaning", "word " * 12]]
    name, share, prose = widths(columns, 60)
    assert (name, share) == (len("wait_samples"), len("share of pool"))
    assert name + share + prose + 2 * GAP == 60


def test_where_nothing_fits_the_numbers_still_stand():
    section = Section("t", ("a" * 20, "b" * 20), (("1,234.56 s", "-98.765 [-99.1, -97.2]"),))
    text = printed(section, 12)
    for number in ("1,234.56", "-98.765", "[-99.1,", "-97.2]"):
        assert number in text
    assert "".join(text.split()).count("a") == 20

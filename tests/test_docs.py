"""The pages name all that the analysis and the command line have, no more, and what is accepted."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any, get_args

import pytest
import report_keys
import yaml
from timelines import Timeline

from rlinsight.analyzers.device_time.states import BUBBLES, PRIORITY, UNATTRIBUTED, cause_of
from rlinsight.analyzers.framework.defects import DefectName
from rlinsight.analyzers.health.alarms import AlarmKind
from rlinsight.analyzers.result import REPORT_SCHEMA_VERSION
from rlinsight.runs import profile
from rlinsight.runs.config import RunConfig
from rlinsight.runs.preflight import CHECKS
from rlinsight.runs.prepare import prepare

ROOT = Path(__file__).parent.parent
ANALYSIS = (ROOT / "docs/analysis.md").read_text()
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])
KEYS = report_keys.keys()
CLI_DOCS = runpy.run_path(str(ROOT / "scripts/cli_docs.py"))
COMMANDS = {name: CLI_DOCS["parameters"](f) for name, f in CLI_DOCS["commands"]().items()}


def section(heading: str) -> str:
    """The text from a heading to the next one of its rank or above."""
    match = re.search(rf"^(#+) {re.escape(heading)}$", ANALYSIS, re.MULTILINE)
    assert match, f"docs/analysis.md has no section `{heading}`"
    rest = ANALYSIS[match.end() :]
    end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start() if end else None]


def cells(text: str) -> list[list[str]]:
    """The body rows of the tables in `text`."""
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip("| ") for cell in row] for row in rows]


def named(heading: str) -> list[str]:
    """The names in backticks in the first column of a section's tables, in order."""
    return [name for row in cells(section(heading)) for name in re.findall(r"`([^`]+)`", row[0])]


def documented_keys() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for part in section("JSON").split("\n### ")[1:]:
        heading, body = part.split("\n", 1)
        places = re.findall(r"`([^`]+)`", heading) or [""]
        for place in places:
            assert place not in found, f"`{place}` is documented twice"
            found[place] = {row[0].strip("`"): row[1] for row in cells(body)}
    return found


def test_every_place_of_the_document_is_documented_and_no_other():
    assert documented_keys().keys() == KEYS.keys()


@pytest.mark.parametrize("place", KEYS)
def test_every_key_is_documented_with_its_type_and_no_other(place):
    assert documented_keys()[place] == KEYS[place]


def test_every_key_says_what_it_is():
    assert [row for row in cells(section("JSON")) if len(row) < 3 or not row[2]] == []


def test_the_version_of_the_document_is_named():
    assert f"version of this document, {REPORT_SCHEMA_VERSION};" in section("The document")


def test_states_are_listed_by_priority():
    assert named("The ledger") == [*PRIORITY, UNATTRIBUTED]


def test_causes_are_listed_by_priority():
    assert named("Bubbles") == [*map(cause_of, BUBBLES), "unknown"]


@pytest.mark.parametrize(("heading", "names"), [("Alarms", AlarmKind), ("Defects", DefectName)])
def test_alarms_and_defects_are_listed(heading, names):
    assert sorted(named(heading)) == sorted(get_args(names))


def test_every_defect_has_a_reference():
    assert [row for row in cells(section("Defects")) if len(row) < 3 or not row[2]] == []


@pytest.mark.parametrize("finding", sorted(report_keys.literals()))
def test_every_verdict_finding_and_grade_is_documented(finding):
    assert f"`{finding}`" in ANALYSIS


def places_of(value: Any, place: str = "") -> set[tuple[str, str]]:
    """The (place, key) pairs of a document."""
    if isinstance(value, list):
        return {pair for item in value for pair in places_of(item, f"{place}[]")}
    if not isinstance(value, dict):
        return set()
    found: set[tuple[str, str]] = set()
    for key, item in value.items():
        is_known = place in KEYS
        inner = f"{place}.{key}" if is_known else f"{place}.*"
        found |= {(place, key)} if is_known else set()
        found |= places_of(item, inner.lstrip("."))
    return found


def test_a_real_document_has_the_keys_that_the_types_say(tmp_path):
    t = Timeline(tmp_path / "t")
    for step, start in ((1, 0), (2, 10)):
        t.step(step, start, start + 10)
        t.span("trainer", "wait_samples", start, start + 4)
        t.span("trainer", "update_actor", start + 4, start + 10)
        t.trained(f"s{step}", start + 4, (60, 140), step, version_start=0, trained_version=0)
    t.gen(0, 20, response_tokens=280, prompt_tokens=120)
    document = json.loads(json.dumps(t.open().analyze().to_dict(), allow_nan=False))
    found = places_of(document)
    assert {key for place, key in found if place == ""} == set(KEYS[""])
    assert {(place, key) for place, key in found if key not in KEYS[place]} == set()
    for place in ("bubbles[]", "staleness", "lengths.histogram[]", "pools.*", "bubble_totals[]"):
        assert {key for where, key in found if where == place} == set(KEYS[place])


# -- the command line ----------------------------------------------------------------------


def test_the_command_line_reference_is_up_to_date():
    assert (ROOT / "docs/cli.md").read_text() == CLI_DOCS["reference"](), "run `make docs`"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_flag_is_documented(command):
    text = (ROOT / "docs/cli.md").read_text()
    part = text.split(f"\n## rlinsight {command}\n")[1].split("\n## ")[0]
    for parameter in COMMANDS[command]:
        for name in parameter.names:
            assert f"`{name}`" in part


def invocations() -> list[tuple[str, str, str]]:
    """(page, command, the rest) of every command line in a page: indented, or in backticks."""
    found = []
    for page in PAGES:
        for line in page.read_text().splitlines():
            candidates = re.findall(r"`(rlinsight [^`]+)`", line)
            candidates += [line.strip()] if line.startswith("    rlinsight ") else []
            for text in candidates:
                words = text.split(" #")[0].split()
                # The commands of a group are named by two words.
                size = 2 if " ".join(words[1:3]) in COMMANDS else 1
                command, rest = " ".join(words[1 : 1 + size]), " ".join(words[1 + size :])
                found.append((page.name, command, rest.split(" -- ")[0]))
    return found


@pytest.mark.parametrize(("page", "command", "rest"), invocations())
def test_pages_name_only_commands_and_flags_that_exist(page, command, rest):
    assert command in COMMANDS, f"{page} names `rlinsight {command}`"
    known = {name for parameter in COMMANDS[command] for name in parameter.names}
    given = {word.split("=")[0] for word in rest.split() if re.fullmatch(r"--?[a-z].*", word)}
    assert given <= known | {"-h", "--help"}, f"{page}: rlinsight {command} {rest}"


# -- links ---------------------------------------------------------------------------------

LINKED = [*PAGES, ROOT / "sample_traces/README.md"]


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        assert not anchor or anchor in headings(linked), target


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_pages_are_named_by_links(page):
    prose = re.sub(r"```.*?```|^    .*$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    bare = re.findall(r"(?<![\[\w/])`?(?:docs/)?\w+\.md\b(?!`?\]|[\)#])", prose)
    assert bare == []


def test_the_readme_leads_to_every_page():
    text = (ROOT / "README.md").read_text()
    pages = {f"docs/{page.name}" for page in ROOT.glob("docs/*.md")}
    assert set(re.findall(r"^\| \[[^]]+\]\((docs/[^)]+)\)", text, re.MULTILINE)) == pages


# -- configurations ------------------------------------------------------------------------


def configurations() -> list[tuple[str, str]]:
    """(page, text) of every whole run configuration in a page."""
    blocks = [
        (page.name, block)
        for page in PAGES
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    return [(name, block) for name, block in blocks if block.startswith(("mode:", "name:"))]


#: What preflight finds on this machine, whatever a page says.
OF_THE_MACHINE = {
    "files", "devices", "ports", "disk", "packages", "versions", "entry point", "log-probabilities",
    "trace URL", "running Ray cluster",
}  # fmt: skip


@pytest.mark.parametrize(("page", "text"), configurations())
def test_configurations_pass_preflight(page, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    config = profile.parse(yaml.safe_load(text))
    assert isinstance(config, RunConfig), page
    prepared = prepare(config)
    prepared.clean_up()
    assert [f for f in prepared.findings if f.check not in OF_THE_MACHINE] == []
    assert prepared.total_steps == config.steps


def test_every_preflight_check_is_documented_and_no_other():
    text = (ROOT / "docs/run.md").read_text().split("\n## Preflight\n")[1].split("\n## ")[0]
    documented = [(row[0].strip("`"), row[3].strip() == "yes") for row in cells(text)]
    assert documented == [(check.name, check.wrapped) for check in CHECKS]


def test_the_pages_about_runs_have_a_configuration_each():
    assert {page for page, _ in configurations()} >= {"run.md", "cpu.md", "emulated.md"}

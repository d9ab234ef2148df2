"""A wrong command line is one sentence: what was expected, what was found, what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMANDS = "run, analyze, serve, check, advise, whatif, compare, tune, validate, doctor, baseline"


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rlinsight", *words], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("analyze", "a", "b c"), "expected one trace for `rlinsight analyze`, found also `b c`"),
        (("doctor", "a"), "doctor` does not take `a` as well"),
        (("whatif", "a", "--objective", "perdevice"),
         "expected `--objective` to be one of `per-device`, `wall-clock`, found `perdevice`; "
         "did you mean `per-device`?"),
        (("whatif", "a", "--seeds", "0"), "expected `--seeds` of at least 1, found `0`"),
        (("whatif", "a", "--seeds=x"), "expected `--seeds` to be a whole number, found `x`"),
        (("compare", "a", "--alpha", "3"), "expected `--alpha` of at most 0.5, found `3`"),
        (("whatif", "a", "--seedz", "3"), "there is no option `--seedz`; did you mean `--seeds`?"),
        (("run", "--trace"), "expected a value after `--trace`, found none"),
        (("analyze",), "expected `TRACE` after "),
        (("baseline", "ad"),
         "expected a command (add, list, trust, drop), found `ad`; did you mean `add`?"),
        (("nosuch",), f"expected a command ({COMMANDS}), found `nosuch`"),
    ],
)  # fmt: skip
def test_it_is_one_sentence(words, said):
    done = typed(*words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_two_traces_are_led_to_the_comparison():
    assert "`rlinsight compare a b` puts runs side by side" in typed("analyze", "a", "b").stderr


@pytest.mark.parametrize("words", [(), ("baseline",)])
def test_nothing_typed_is_answered_with_the_help(words):
    done = typed(*words)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.count("Usage: ") == 1

"""Colours: one for each state, visible on both pages, told apart by people who see few of them."""

from __future__ import annotations

import itertools

import pytest

from rlinsight.analyzers.device_time.states import BUBBLES, STATES, UNATTRIBUTED, kind
from rlinsight.trace.schema import ACTIVITIES
from rlinsight.webapp import palette

PAGES = {"light": "#ffffff", "dark": "#1b1f26"}

#: Viénot, Brettel and Mollon (1999), for linear RGB.
BLINDNESS = {
    "protan": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deutan": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def linear(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(colour):
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    m = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(a * b for a, b in zip(row, rgb, strict=True)) for row in m]
    f = [
        (v / n) ** (1 / 3) if v / n > 0.008856 else 7.787 * v / n + 16 / 116
        for v, n in zip(xyz, (0.9505, 1, 1.089), strict=True)
    ]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def distance(one, other, blindness):
    def seen(colour):
        rgb = linear(colour)
        rows = BLINDNESS[blindness]
        return lab([max(sum(a * b for a, b in zip(r, rgb, strict=True)), 0) for r in rows])

    return sum((a - b) ** 2 for a, b in zip(seen(one), seen(other), strict=True)) ** 0.5


def test_every_state_activity_and_cause_has_a_colour():
    assert set(palette.STATE) == set(STATES)
    assert set(palette.ACTIVITY) >= ACTIVITIES
    assert len(palette.CAUSE) == len(BUBBLES) + 1


def test_no_two_states_share_a_colour():
    assert len(set(palette.STATE.values())) == len(palette.STATE)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("state", STATES)
def test_a_colour_stands_out_from_the_page(state, page):
    assert contrast(palette.STATE[state], PAGES[page]) >= 2


def test_every_bubble_has_a_pattern_and_nothing_else_has():
    assert set(palette.PATTERN) == {*BUBBLES, UNATTRIBUTED}
    assert all(palette.PATTERN.values())


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_the_common_states_are_told_apart_by_the_colour_blind(blindness):
    common = (
        "train.update_actor", "generate", "weight_sync", "bubble.wait_samples",
        "bubble.staleness_quota",
    )  # fmt: skip
    for one, other in itertools.combinations(common, 2):
        assert distance(palette.STATE[one], palette.STATE[other], blindness) > 15, (one, other)


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_curves_of_the_first_runs_are_told_apart_by_the_colour_blind(blindness):
    for one, other in itertools.combinations(palette.SERIES[:4], 2):
        assert distance(one, other, blindness) > 15, (one, other)


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_a_bubble_never_looks_like_work(blindness):
    work = [s for s in STATES if kind(s) != "bubble"]
    idle = [s for s in STATES if kind(s) == "bubble"]
    for one, other in itertools.product(work, idle):
        assert distance(palette.STATE[one], palette.STATE[other], blindness) > 5, (one, other)

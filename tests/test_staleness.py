"""Lags in versions, fates, and the token account, on hand-computed trajectories."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_frames import frame
from timelines import S, Timeline

from rlinsight.analyzers.staleness.lags import fates, staleness
from rlinsight.analyzers.staleness.tokens import token_account

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
}


def sample(uid, fate="trained", **columns):
    return {"sample_uid": uid, "fate": fate, **columns}


def request(uid, tokens, attempt=1, **columns):
    return {
        "request_id": f"{uid}#1",
        "sample_uid": uid,
        "lane": "replica0",
        "submit_ns": attempt * S,
        "end_ns": (attempt + 1) * S,
        "response_tokens": tokens,
        "attempt": attempt,
        "finish": "stop",
        "validate": False,
        **columns,
    }


def test_lags_from_first_and_last_token_and_the_span_between_them():
    found = staleness(
        frame(
            "samples",
            [
                sample("a", trained_version=5, version_start=5, version_end=5),
                sample("b", trained_version=5, version_start=3, version_end=4),
                sample("c", trained_version=5),
            ],
        )
    )
    assert found.trained_samples == 3
    assert (found.worst_token.counts, found.last_token.counts) == ({0: 1, 2: 1}, {0: 1, 1: 1})
    assert (found.worst_token.mean_versions, found.worst_token.max_versions) == (1.0, 2)
    assert found.span.counts == {0: 1, 1: 1}
    assert (found.stale_share, found.partial_share) == (0.5, 0.5)


def test_an_unknown_version_is_not_a_lag_of_0():
    rows = [sample("a", trained_version=5, version_end=4), sample("b")]
    found = staleness(frame("samples", rows))
    assert found.worst_token.counts == {}
    assert (found.worst_token.mean_versions, found.stale_share) == (None, None)
    assert (found.worst_token.known_share, found.last_token.known_share) == (0.0, 0.5)


def test_a_sample_newer_than_the_trainer_stays_negative():
    row = sample("a", trained_version=1, version_start=2, version_end=2)
    found = staleness(frame("samples", [row]))
    assert found.worst_token.counts == {-1: 1}
    assert found.stale_share == 0.0


def test_no_samples_give_no_figures():
    found = staleness(frame("samples", []))
    assert (found.trained_samples, found.worst_token.known_share, found.stale_share) == (
        0,
        None,
        None,
    )
    assert found.fates.trained_share is None


def test_lags_are_of_samples_trained_and_fates_of_samples_produced_in_the_window():
    samples = frame(
        "samples",
        [
            sample("before", produced_ns=1 * S, consumed_ns=12 * S, trained_version=2,
                   version_start=0),
            sample("inside", produced_ns=11 * S, consumed_ns=13 * S, trained_version=2,
                   version_start=2),
            sample("later", produced_ns=19 * S, consumed_ns=25 * S, trained_version=4,
                   version_start=2),
            sample("stale", "dropped_stale", produced_ns=15 * S),
            sample("given_up", "aborted"),
            sample("given_up_later", "aborted"),
        ],
    )  # fmt: skip
    requests = frame(
        "requests",
        [
            request("given_up", 7, submit_ns=10 * S, end_ns=14 * S),
            request("given_up_later", 7, submit_ns=10 * S, end_ns=24 * S),
        ],
    )
    found = staleness(samples, requests, window=(10 * S, 20 * S))
    assert found.worst_token.counts == {0: 1, 2: 1}
    assert found.fates.samples == 4
    assert (found.fates.trained_share, found.fates.dropped_share, found.fates.aborted_share) == (
        0.5,
        0.25,
        0.25,
    )


def test_a_sample_that_nobody_gave_a_fate_was_not_consumed():
    found = fates(frame("samples", [sample("a"), sample("b", None), sample("c", "unconsumed")]))
    assert (found.trained_share, found.unconsumed_share) == (pytest.approx(1 / 3), 2 / 3)


def test_a_recorded_trace_gives_the_same_lags(tmp_path):
    timeline = Timeline(tmp_path)
    timeline.trained(
        "g/0", 5, (10, 20), 1, group_uid="g", trained_version=3, version_start=1, version_end=2
    )
    trace = timeline.open()
    found = staleness(trace.samples.collect(), trace.requests.collect())
    assert found.worst_token.counts == {2: 1}


# -- the token account ---------------------------------------------------------------------


def test_case_token_conservation():
    case = CASES["token-conservation"]
    given_in = case["input"]
    samples = frame(
        "samples",
        [
            sample("kept", response_tokens=given_in["consumed"]),
            sample("lost", "dropped_stale", response_tokens=given_in["discarded"]),
        ],
    )
    requests = frame(
        "requests",
        [request("kept", given_in["consumed"]), request("lost", given_in["discarded"])],
    )
    found = token_account(requests, samples)
    assert found.generated_tokens == given_in["generated"]
    assert found.residual_tokens == case["expect"]["residual"]
    assert round(found.wasted_share, 4) == case["expect"]["wasted_share"]


def test_an_aborted_attempt_that_the_next_one_continues_is_not_waste():
    samples = frame("samples", [sample("a", response_tokens=30)])
    requests = frame(
        "requests",
        [
            request("a", 10, attempt=1, prompt_tokens=5, finish="abort"),
            request("a", 20, attempt=2, prompt_tokens=15),
        ],
    )
    found = token_account(requests, samples)
    assert (found.generated_tokens, found.trained_tokens) == (30, 30)
    assert (found.discarded_tokens, found.residual_tokens) == (0, 0)
    assert found.assumed_continued_tokens == 0


def test_an_aborted_attempt_that_the_next_one_starts_over_is_waste():
    samples = frame("samples", [sample("a", response_tokens=20)])
    requests = frame(
        "requests",
        [
            request("a", 10, attempt=1, prompt_tokens=5, finish="abort"),
            request("a", 20, attempt=2, prompt_tokens=5),
        ],
    )
    found = token_account(requests, samples)
    assert (found.generated_tokens, found.trained_tokens, found.discarded_tokens) == (30, 20, 10)
    assert found.residual_tokens == 0
    assert (found.wasted_tokens, found.wasted_share) == (10, pytest.approx(1 / 3))


def test_a_continuation_that_cannot_be_checked_is_assumed_and_counted():
    samples = frame("samples", [sample("a", response_tokens=30)])
    requests = frame(
        "requests", [request("a", 10, attempt=1, finish="abort"), request("a", 20, attempt=2)]
    )
    found = token_account(requests, samples)
    assert (found.assumed_continued_tokens, found.discarded_tokens) == (10, 0)


def test_attempts_are_ordered_by_their_number_not_by_their_place():
    samples = frame("samples", [sample("a", response_tokens=30)])
    requests = frame(
        "requests",
        [
            request("a", 20, attempt=2, prompt_tokens=15),
            request("a", 10, attempt=1, prompt_tokens=5, finish="abort"),
        ],
    )
    assert token_account(requests, samples).discarded_tokens == 0


def test_tokens_on_their_way_are_neither_trained_nor_waste():
    samples = frame("samples", [sample("a", response_tokens=30), sample("q", None)])
    requests = frame(
        "requests",
        [
            request("a", 30),
            request("q", 8),
            request("first_turn_of_c", 5),
            request("open", None, end_ns=None),
            request(None, 2, request_id="warm-up"),
        ],
    )
    found = token_account(requests, samples)
    assert found.generated_tokens == 45
    assert (found.unconsumed_tokens, found.in_flight_tokens, found.unassigned_tokens) == (8, 5, 2)
    assert (found.open_requests, found.samples_without_length) == (1, 1)
    assert (found.residual_tokens, found.wasted_tokens) == (0, 0)


def test_tool_output_in_a_response_is_left_as_residual():
    samples = frame("samples", [sample("a", response_tokens=40)])
    found = token_account(frame("requests", [request("a", 30)]), samples)
    assert found.residual_tokens == -10


def test_the_outputs_of_one_trajectory_share_its_requests():
    samples = frame(
        "samples", [sample("g/0", response_tokens=10), sample("g/0.1", response_tokens=20)]
    )
    found = token_account(frame("requests", [request("g/0", 30)]), samples)
    assert (found.trained_tokens, found.in_flight_tokens, found.residual_tokens) == (30, 0, 0)


def test_requests_that_name_no_trajectory_are_those_of_the_samples():
    samples = frame("samples", [sample("a", response_tokens=30), sample("b", response_tokens=5)])
    requests = frame(
        "requests",
        [request(None, 30, request_id="r1"), request(None, 7, request_id="r2")],
    )
    found = token_account(requests, samples)
    assert (found.generated_tokens, found.unassigned_tokens, found.residual_tokens) == (37, 0, 2)


def test_validation_is_not_generated_for_training():
    requests = frame("requests", [request("a", 30), request("v", 99, validate=True)])
    found = token_account(requests, frame("samples", [sample("a", response_tokens=30)]))
    assert found.generated_tokens == 30


def test_without_requests_there_is_nothing_to_check_against():
    samples = frame(
        "samples", [sample("a", response_tokens=30), sample("b", "filtered", response_tokens=10)]
    )
    found = token_account(frame("requests", []), samples)
    assert (found.source, found.generated_tokens, found.residual_tokens) == ("samples", 40, None)
    assert (found.wasted_tokens, found.discarded_tokens) == (10, None)
    assert token_account(frame("requests", []), frame("samples", [])) is None


def test_a_sample_is_accounted_with_all_its_requests_even_those_before_the_window():
    samples = frame(
        "samples",
        [
            sample("a", produced_ns=12 * S, response_tokens=30),
            sample("b", produced_ns=8 * S, response_tokens=11),
        ],
    )
    requests = frame(
        "requests",
        [
            request("a", 10, prompt_tokens=5, submit_ns=1 * S, end_ns=9 * S, finish="abort"),
            request("a", 20, attempt=2, prompt_tokens=15, submit_ns=9 * S, end_ns=12 * S),
            request("b", 11, submit_ns=2 * S, end_ns=8 * S),
        ],
    )
    found = token_account(requests, samples, window=(10 * S, 20 * S))
    assert (found.generated_tokens, found.trained_tokens, found.residual_tokens) == (30, 30, 0)


def test_starting_over_loses_the_earlier_attempts_that_had_been_continued():
    samples = frame("samples", [sample("a", response_tokens=4)])
    requests = frame(
        "requests",
        [
            request("a", 10, attempt=1, prompt_tokens=5, finish="abort"),
            request("a", 20, attempt=2, prompt_tokens=15, finish="abort"),
            request("a", 4, attempt=3, prompt_tokens=5),
        ],
    )
    found = token_account(requests, samples)
    assert (found.trained_tokens, found.discarded_tokens, found.residual_tokens) == (4, 30, 0)


FATES = st.sampled_from(
    ["trained", "dropped_stale", "filtered", "aborted", "unconsumed", None, "no row"]
)
#: Of each attempt: its tokens, and how many tokens of the ones before it keeps (capped).
ATTEMPTS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 999)), min_size=1, max_size=5)


@settings(deadline=None)
@given(st.lists(st.tuples(FATES, ATTEMPTS, st.booleans()), max_size=12))
def test_generated_tokens_are_conserved(trajectories):
    samples, requests, lost = [], [], 0
    for i, (fate, attempts, length_known) in enumerate(trajectories):
        held = 0
        for number, (tokens, keeps) in enumerate(attempts, start=1):
            lost += max(0, held - keeps)
            held = min(held, keeps)
            requests.append(request(f"t{i}", tokens, attempt=number, prompt_tokens=100 + held))
            held += tokens
        if fate != "no row":
            length = held if length_known else None
            samples.append(sample(f"t{i}", fate, response_tokens=length))
    found = token_account(frame("requests", requests), frame("samples", samples))
    if not requests:
        assert found is None
        return
    terms = (
        found.trained_tokens, found.dropped_tokens, found.filtered_tokens, found.aborted_tokens,
        found.unconsumed_tokens, found.discarded_tokens, found.in_flight_tokens,
        found.unassigned_tokens, found.residual_tokens,
    )  # fmt: skip
    assert found.generated_tokens == sum(r["response_tokens"] for r in requests) == sum(terms)
    assert (found.discarded_tokens, found.residual_tokens) == (lost, 0)

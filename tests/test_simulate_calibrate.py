"""Calibration: known speeds are found again, and the object survives JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from simulated import job
from timelines import TOPOLOGY, Timeline

import rlinsight
from rlinsight.analyzers.simulate import Calibration, simulate
from rlinsight.analyzers.simulate.calibrate import _training_requests
from rlinsight.analyzers.simulate.fit import explained, non_negative, standard_error
from rlinsight.analyzers.simulate.fit_decode import decoding, fit_decode, start_times
from rlinsight.analyzers.simulate.fit_training import fit_training, step_table
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.analyzers.simulate.pace import token_times, update_seconds
from rlinsight.analyzers.simulate.read_config import unmodelled
from rlinsight.analyzers.simulate.speed import times_beside
from rlinsight.analyzers.tables import read_tables
from rlinsight.errors import ConfigError, TraceError

SAMPLES = Path(__file__).parent.parent / "sample_traces"
S = 1_000_000_000


def requests(*rows: tuple[float, float, float, int]) -> pl.DataFrame:
    """Requests on one replica from (submitted, first token, end, tokens)."""
    return pl.DataFrame(
        [
            {"lane": "r0", "submit_ns": round(a * S), "first_token_ns": round(b * S),
             "end_ns": round(c * S), "response_tokens": n}
            for a, b, c, n in rows
        ]
    )  # fmt: skip


def test_times_beside_others():
    found = times_beside(decoding(requests((0, 0, 4, 10), (0, 2, 4, 10))))
    assert found.levels.tolist() == [1, 2]
    assert found.beside.tolist() == [[2, 2], [0, 2]]
    assert found.mean_running.tolist() == [1.5, 2.0]
    assert found.tokens.tolist() == [9, 9]


def test_long_responses_that_end_alone_do_not_hide_the_speed():
    # One batch starts together; a token takes 5 ms + 0.1 ms for each of those still running.
    rng = np.random.default_rng(0)
    lengths, now, rows = np.sort(rng.integers(50, 3000, size=200)), 0.0, []
    for i, tokens in enumerate(lengths):
        before = lengths[i - 1] if i else 1
        now += (tokens - before) * (0.005 + 0.0001 * (200 - i))
        rows.append((0.0, 0.0, now, int(tokens)))
    decode, _, _ = fit_decode(requests(*rows), capacity=256)
    assert decode.base_s == pytest.approx(0.005, rel=0.03)
    assert decode.per_running_s == pytest.approx(0.0001, rel=0.03)
    assert decode.end_s == pytest.approx(0.0, abs=0.2)  # of durations up to 50 s


def test_known_decoding_speed_is_found_again():
    rng = np.random.default_rng(0)
    rows = []
    for batch in range(40):  # batches of n responses that start and end together
        n, tokens, start = int(rng.integers(1, 9)), int(rng.integers(20, 400)), batch * 1000.0
        seconds = 0.2 + (tokens - 1) * (0.01 + 0.002 * n)
        rows += [(start, start + 0.5, start + 0.5 + seconds, tokens)] * n
    decode, error, _ = fit_decode(requests(*rows), capacity=16)
    assert decode.base_s == pytest.approx(0.01, rel=1e-3)
    assert decode.per_running_s == pytest.approx(0.002, rel=1e-3)
    assert decode.end_s == pytest.approx(0.2, rel=1e-2)
    assert decode.start_s == pytest.approx(0.5)
    assert decode.r2 == pytest.approx(1.0)
    assert error < 1e-3


def test_a_start_is_counted_from_the_end_that_freed_its_slot():
    # One slot; each is submitted at 0 and starts 0.2 s after the end of the one before.
    rows, free = [], 0.0
    for _ in range(12):
        rows.append((0.0, free + 0.2, free + 1.2, 10))
        free += 1.2
    held, transport = start_times(requests(*rows), capacity=1)
    assert held.value == pytest.approx(0.2)
    assert transport.value == pytest.approx(0.0)


def test_a_slot_is_free_before_the_end_in_it_is_noticed():
    # One slot, 0.2 s from a last token to the next first one; ends are noticed 3 s late.
    rows = [(0.0, 1.2 * i + 0.2, 1.2 * i + 1.2 + 3.0, 10) for i in range(12)]
    held, _ = start_times(requests(*rows), capacity=1, noticed_s=3.0)
    assert held.value == pytest.approx(0.2)
    assert start_times(requests(*rows), capacity=1)[0].free == pytest.approx(-2.8)


def test_what_a_free_slot_takes_longer_is_transport():
    rows = [(0.0, 0.5, 1.5, 10)]  # a free slot: 0.5 s from submission
    rows += [(0.1, 1.5 + 1.2 * i + 0.2, 1.5 + 1.2 * (i + 1), 10) for i in range(12)]
    held, transport = start_times(requests(*rows), capacity=1)
    assert held.value == pytest.approx(0.2)
    assert transport.value == pytest.approx(0.3)


def test_requests_of_a_validation_that_never_ended_are_no_training_requests(tmp_path):
    """Cut off in a validation: its requests, at four times the pace, say nothing of training."""
    line = Timeline(tmp_path / "t", mode="fully_async")
    for i in range(8):
        line.gen(10 * i, 10 * i + 8, response_tokens=81)
    line.span("trainer", "validate", 80, None)
    for i in range(6):
        line.gen(81 + i, 83 + i, response_tokens=81, validate=i > 2)
    found = _training_requests(read_tables(line.open()))
    assert found["end_ns"].to_list() == [(10 * i + 8) * S for i in range(8)]


def test_samples_of_unknown_length_are_as_long_as_the_others_of_their_step(tmp_path):
    line = Timeline(tmp_path / "t", mode="fully_async")
    line.step(1, 0, 10)
    line.trained("a", 1, (10, 90), 1)
    line.trained("b", 1, (10, 190), 1)
    line.trained("c", 1, (10, None), 1)
    line.step(2, 10, 20)
    line.trained("d", 11, (10, 90), 2)
    tables = read_tables(line.open())
    found = step_table(tables.spans, tables.steps, tables.samples).sort("step")
    assert found["tokens"].to_list() == [450, 100]


def test_what_a_run_does_that_is_not_simulated_is_noted():
    config = {
        "async_training": {"use_dynamic_resource_scheduling": True},
        "algorithm": {"filter_groups": {"enable": True}},
    }
    scheduling, filtering = unmodelled(config)
    assert "`async_training.use_dynamic_resource_scheduling` is on" in scheduling
    assert "`algorithm.filter_groups.enable` is on" in filtering
    assert unmodelled({"algorithm": {"filter_groups": {"enable": False}}}) == ()


def steps(*rows: tuple[float, int, int]) -> pl.DataFrame:
    """A step table from (training seconds, updates, tokens)."""
    return pl.DataFrame([{"update_actor": s, "updates": u, "tokens": n} for s, u, n in rows])


def test_known_training_time_is_found_again():
    knobs = Knobs(mode="sync", mini_batch=4, train_batch=4)
    table = steps(*((u * 1.0 + n * 0.001, u, n) for u, n in ((1, 1000), (2, 2000), (2, 5000))))
    training, _, _ = fit_training(table, knobs)
    assert training.fixed_s == pytest.approx(1.0)
    assert training.per_token_s == pytest.approx(0.001)
    assert training.updates == 5
    assert np.mean(training.residuals) == pytest.approx(1.0)


def test_what_a_constraint_takes_the_residuals_give_back():
    # Time falls with tokens: the slope is 0, and what is drawn has the measured mean all the same.
    knobs = Knobs(mode="sync", mini_batch=4, train_batch=4)
    table = steps((3.0, 1, 1000), (2.5, 1, 2000), (2.0, 1, 4000), (1.0, 1, 8000), (2.2, 1, 3000))
    training, _, _ = fit_training(table, knobs)
    tokens = (1000, 2000, 4000, 8000, 3000)
    fitted = [training.fixed_s + n * training.per_token_s for n in tokens]
    drawn = [ratio * s for ratio, s in zip(training.residuals, fitted, strict=True)]
    assert training.per_token_s == 0
    assert drawn == pytest.approx([3.0, 2.5, 2.0, 1.0, 2.2])


def test_micro_batches_are_told_apart_where_their_number_varies():
    knobs = Knobs(mode="sync", mini_batch=4, train_batch=4, token_budget=1000)
    sizes = (500, 900, 1500, 1900, 2500)
    table = steps(*((0.5 + 0.3 * -(-n // 1000) + n * 0.0002, 1, n) for n in sizes))
    training, _, _ = fit_training(table, knobs)
    assert training.per_micro_batch_s == pytest.approx(0.3)
    assert training.fixed_s == pytest.approx(0.5)


def test_micro_batches_that_never_vary_get_half_of_the_constant():
    knobs = Knobs(mode="sync", mini_batch=4, train_batch=4, token_budget=1000)
    table = steps(*((1.0 + n * 0.001, 1, n) for n in (600, 700, 900)))
    training, _, _ = fit_training(table, knobs)
    assert training.fixed_s == pytest.approx(0.5)
    assert training.per_micro_batch_s == pytest.approx(0.5)


def test_more_devices_share_the_tokens_of_an_update():
    calibration = job("sync", train_s=1.0, trainer_devices=1)
    more = calibration.knobs.changed({"trainer_devices": 2})
    assert update_seconds(calibration, more, 1000) == pytest.approx(1.0)  # nothing per token
    assert token_times(calibration, more)[1] == 1.0


def test_non_negative_least_squares():
    ones, twos = np.ones(3), np.array([1.0, 2.0, 3.0])
    assert non_negative([ones, twos], 1 + 2 * twos) == pytest.approx([1, 2])
    assert non_negative([ones, twos], 5 - twos).min() >= 0
    assert explained(twos, twos) == 1.0
    assert explained(ones, ones) is None
    assert standard_error(np.array([0.9, 1.1])) == pytest.approx(0.1)


# ---- lengths -------------------------------------------------------------------------------

GROUPS = LengthModel(((10, 12), (100, 130), (900, 1000)), cap=1000)
RNG = np.random.default_rng


def test_groups_are_drawn_whole():
    drawn = GROUPS.draw(RNG(0), 200, 2)
    assert {tuple(sorted(row)) for row in drawn.tolist()} == {(10, 12), (100, 130), (900, 1000)}


def test_another_group_size_draws_members_of_one_group():
    for row in GROUPS.draw(RNG(0), 50, 5).tolist():
        assert any(set(row) <= set(group) for group in GROUPS.groups)


def test_scale_moves_the_mean_and_tail_the_spread():
    plain, scaled, spread = (
        GROUPS.draw(RNG(0), 4000, 2, maximum=10**6, scale=scale, tail=tail)
        for scale, tail in ((1.0, 1.0), (2.0, 1.0), (1.0, 1.5))
    )
    assert scaled.mean() == pytest.approx(2 * plain.mean(), rel=0.01)
    assert spread.mean() == pytest.approx(plain.mean(), rel=0.01)
    assert spread.std() > 1.1 * plain.std()


def test_the_maximum_cuts_and_a_higher_one_continues_what_was_cut():
    assert GROUPS.capped_share == pytest.approx(1 / 6)
    assert GROUPS.draw(RNG(0), 500, 2, maximum=50).max() == 50
    longer = GROUPS.draw(RNG(0), 500, 2, maximum=4000)
    assert longer.max() > 1000
    assert ((longer == 900) | (longer == 10)).any()  # what was not cut stays


# ---- whole traces --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "fully_async"])
def test_a_calibration_survives_json(mode):
    calibration = Calibration.from_trace(rlinsight.open(SAMPLES / mode))
    again = Calibration.from_json(calibration.to_json())
    assert again == calibration
    assert simulate(again, seeds=(0,), versions=8) == simulate(calibration, seeds=(0,), versions=8)


def test_an_unknown_version_of_it_is_refused():
    data = json.loads(job().to_json()) | {"schema_version": 99}
    with pytest.raises(TraceError, match="schema version 2, found `99`"):
        Calibration.from_dict(data)


def test_a_trace_without_requests_or_metrics_cannot_be_calibrated(tmp_path):
    line = Timeline(tmp_path / "t", TOPOLOGY, config={"rollout": {"n": 1}})
    line.step(1, 0, 10)
    with pytest.raises(TraceError, match="found neither"):
        Calibration.from_trace(line.open())


def test_a_trace_without_a_mode_cannot_be_calibrated(tmp_path):
    line = Timeline(tmp_path / "t", TOPOLOGY, mode=None)
    line.step(1, 0, 10)
    with pytest.raises(ConfigError, match="found `None`"):
        Calibration.from_trace(line.open())


def test_speed_is_found_without_first_tokens():
    # 16 slots, never more than 8 in use: duration = 0.5 s + tokens x (10 ms + 2 ms x running).
    rng, rows = np.random.default_rng(0), []
    for batch in range(40):
        n, tokens, start = int(rng.integers(1, 9)), int(rng.integers(20, 400)), batch * 1000.0
        rows += [(start, start, start + 0.5 + (tokens - 1) * (0.01 + 0.002 * n), tokens)] * n
    frame = requests(*rows).with_columns(first_token_ns=pl.lit(None, pl.Int64))
    decode, _, _ = fit_decode(frame, capacity=16)
    assert decode.base_s == pytest.approx(0.01, rel=1e-3)
    assert decode.per_running_s == pytest.approx(0.002, rel=1e-3)
    assert (decode.start_s, decode.end_s) == (pytest.approx(0.5, rel=0.01), 0.0)

"""What stale samples save the trainer, replayed by hand. Times are seconds."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_frames import frame
from timelines import S, Timeline

import rlinsight
from rlinsight.analyzers.staleness.coverage import analytic_coverage, coverage, sync_settings


def wait(start, end, version=5, lane="trainer"):
    return {
        "activity": "wait_samples",
        "lane": lane,
        "start_ns": round(start * S),
        "end_ns": round(end * S),
        "param_version": version,
    }


def unit(uid, done, version, consumed=None, **columns):
    """A sample complete at `done`, generated at `version`, taken at `consumed`."""
    return {
        "sample_uid": uid,
        "produced_ns": None if done is None else round(done * S),
        "consumed_ns": None if consumed is None else round(consumed * S),
        "version_start": version,
        "version_end": version,
        "fate": "unconsumed" if consumed is None else "trained",
        **columns,
    }


def measure(waits, units, **arguments):
    return coverage(frame("spans", waits), frame("samples", units), **arguments)


# Step 1 takes two old samples at once, 3 s of work, step 2 waits 13-16 for two new ones.
WAITS = [wait(10, 10), wait(13, 16)]
UNITS = [
    unit("old0", 8, 4, consumed=10),
    unit("old1", 9, 4, consumed=10),
    unit("new0", 14, 5, consumed=16),
    unit("new1", 16, 5, consumed=16),
    unit("new2", 19, 5),
    unit("new3", 20, 5),
]


def test_without_the_old_samples_both_steps_would_have_waited():
    found = measure(WAITS, UNITS)
    (window,) = found.windows
    assert (window.version, window.trigger_steps, window.wait_s) == (5, 2, 3.0)
    # Step 1 gets new0 and new1 at 16, step 2 is ready at 19 and gets new2 and new3 at 20.
    assert window.fresh_only_wait_s == 6.0 + 1.0
    assert window.coverage == pytest.approx(1 - 3 / 7)
    assert window.covered_steps == (1,)
    assert found.measured == window.coverage


def test_each_position_after_a_sync_has_its_share_of_stale_samples():
    later = [wait(30, 30, 6), wait(33, 36, 6)]
    units = [
        unit("a", 29, 5, consumed=30),
        unit("b", 29, 6, consumed=30),
        unit("c", 36, 6, consumed=36),
    ]
    first, second = measure(WAITS + later, UNITS + units).steps
    assert (first.position, first.windows, first.mean_wait_s) == (1, 2, 0.0)
    assert (first.covered_share, first.stale_share) == (0.5, 0.75)
    assert (second.covered_share, second.stale_share, second.mean_wait_s) == (0.0, 0.0, 3.0)


def test_only_fresh_samples_leave_nothing_to_cover():
    found = measure([wait(10, 15)], [unit("a", 14, 5, consumed=15)])
    # 1 s of delivery (queue, polling) is not an effect of staleness.
    assert found.windows[0].fresh_only_wait_s == 5.0
    assert found.measured == 0.0
    assert found.windows[0].covered_steps == ()


def test_a_partial_trajectory_is_as_old_as_its_first_token():
    partial = unit("p", 12, 4, consumed=12, version_end=5)
    found = measure([wait(10, 12)], [partial, unit("n", 14, 5)])
    assert found.windows[0].fresh_only_wait_s == 4.0
    assert found.windows[0].covered_steps == (1,)


def test_a_group_counts_once_and_is_as_late_and_as_old_as_its_worst_member():
    group = [
        unit("g/0", 11, 5, consumed=14, group_uid="g"),
        unit("g/1", 14, 4, consumed=14, group_uid="g"),
    ]
    fresh = [unit("h/0", 12, 5, group_uid="h"), unit("h/1", 17, 5, group_uid="h")]
    (window,) = measure([wait(10, 14)], group + fresh).windows
    assert (window.wait_s, window.fresh_only_wait_s) == (4.0, 7.0)


def test_what_could_not_be_trained_does_not_count_as_available():
    units = [
        unit("old", 10, 4, consumed=10),
        {**unit("no_signal", 11, 5), "fate": "filtered"},
        {**unit("failed", 11, 5), "fate": "aborted"},
        {**unit("too_old_later", 15, 5), "fate": "dropped_stale"},
    ]
    assert measure([wait(10, 10)], units).windows[0].fresh_only_wait_s == 5.0


def test_waits_that_brought_nothing_belong_to_the_next_batch():
    # 2 s for enough samples, 1 s to switch over, then 3 s for the batch: 5 s of waiting.
    found = measure([wait(10, 12), wait(13, 16)], [unit("a", 16, 5, consumed=16)])
    assert (found.windows[0].trigger_steps, found.windows[0].wait_s) == (1, 5.0)


def test_a_wait_recorded_twice_counts_once():
    found = measure([wait(10, 16), wait(11, 15)], [unit("a", 16, 5, consumed=16)])
    assert (found.windows[0].trigger_steps, found.windows[0].wait_s) == (1, 6.0)


def test_a_recording_that_ends_too_early_gives_no_figure():
    found = measure(WAITS, UNITS[:-1])
    assert found.windows[0].coverage is None
    assert "3 of 4 samples" in found.windows[0].unknown
    assert (found.measured, found.known_share, found.wait_s) == (None, 0.0, None)


def test_an_unknown_version_or_time_gives_no_figure():
    nameless = [{**u, "version_start": None} if u["sample_uid"] == "old0" else u for u in UNITS]
    undated = [{**u, "produced_ns": None} if u["sample_uid"] == "new0" else u for u in UNITS]
    for units in (nameless, undated):
        (window,) = measure(WAITS, units).windows
        assert window.coverage is None
        assert "unknown in 1 of 2 steps" in window.unknown


def test_samples_consumed_before_they_were_complete_give_no_figure():
    units = [{**u, "produced_ns": 99 * S} if u["sample_uid"] == "old0" else u for u in UNITS]
    (window,) = measure(WAITS, units).windows
    assert window.coverage is None
    assert "before they were complete in 1 of 2 steps" in window.unknown


def test_a_completion_that_was_not_recorded_is_that_of_the_last_request():
    units = [{**u, "produced_ns": None} for u in UNITS]
    requests = [
        {
            "request_id": u["sample_uid"],
            "sample_uid": u["sample_uid"],
            "lane": "replica0",
            "submit_ns": 0,
            "end_ns": u["produced_ns"],
        }
        for u in UNITS
    ]
    found = measure(WAITS, units, requests=frame("requests", requests))
    assert found.measured == pytest.approx(4 / 7)


def test_nothing_to_wait_for_is_not_full_coverage():
    found = measure([wait(10, 10)], [unit("a", 9, 4, consumed=10), unit("b", 9.5, 5)])
    assert (found.windows[0].fresh_only_wait_s, found.windows[0].coverage) == (0.0, None)
    assert "nothing to wait for" in found.windows[0].unknown
    assert found.measured is None


def test_windows_weigh_as_much_as_their_waits():
    # Version 6 waits 10 s and would have waited 10 s: 0 covered. Together 1 - 13/17.
    found = measure([*WAITS, wait(30, 40, 6)], [*UNITS, unit("c", 40, 6, consumed=40)])
    assert [w.coverage for w in found.windows] == [pytest.approx(4 / 7), 0.0]
    assert found.measured == pytest.approx(1 - 13 / 17)


def test_a_version_that_the_window_cuts_is_left_out():
    waits = [*WAITS, wait(30, 40, 6)]
    units = [*UNITS, unit("c", 40, 6, consumed=40)]
    found = measure(waits, units, window=(12 * S, 50 * S))
    assert [w.version for w in found.windows] == [6]


def test_the_version_of_a_wait_is_taken_from_its_samples_or_from_the_version_windows():
    trained = [{**u, "trained_version": 5} if u["consumed_ns"] else u for u in UNITS]
    waits = [wait(10, 10, None), wait(13, 16, None)]
    assert measure(waits, trained).windows[0].version == 5
    versions = pl.DataFrame({"version": [4, 5], "start_ns": [0, 9 * S], "end_ns": [9 * S, 99 * S]})
    found = measure(waits, UNITS, versions=versions)
    assert [w.version for w in found.windows] == [5]
    assert found.measured == pytest.approx(4 / 7)
    assert measure(waits, UNITS).windows == ()


def test_only_the_drivers_waits_count():
    topology = rlinsight.Topology(
        lanes=[
            rlinsight.Lane("trainer", role="trainer"),
            rlinsight.Lane("rank0", role="trainer_rank"),
        ]
    )
    found = measure([*WAITS, wait(9, 16, lane="rank0")], UNITS, topology=topology)
    assert found.windows[0].wait_s == 3.0


def test_a_trace_without_waits_has_no_coverage():
    found = measure([], UNITS)
    assert (found.measured, found.windows, found.steps, found.known_share) == (None, (), (), None)


def test_a_recorded_trace_gives_the_same_coverage(tmp_path):
    timeline = Timeline(tmp_path)
    for span in WAITS:
        timeline.span(
            "trainer",
            "wait_samples",
            span["start_ns"] / S,
            span["end_ns"] / S,
            param_version=5,
        )
    for row in UNITS:
        timeline.writer.sample(**{k: v for k, v in row.items() if v is not None})
    trace = timeline.open()
    found = coverage(
        trace.spans.collect(),
        trace.samples.collect(),
        trace.requests.collect(),
        topology=trace.topology,
    )
    assert found.measured == pytest.approx(4 / 7)


STEP = st.tuples(st.integers(0, 20), st.integers(1, 4), st.integers(0, 5), st.integers(0, 3))


@settings(deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8))
def test_the_replay_of_fresh_samples_in_order_is_the_record(steps):
    """Each step: work before it, units, seconds between units, seconds of delivery."""
    waits, units, now, complete = [], [], 100, 50
    for number, (work, count, pace, delivery) in enumerate(steps):
        ready = now + work
        done = [complete + pace * (i + 1) for i in range(count)]
        complete = done[-1]
        now = max(ready, complete) + delivery
        waits.append(wait(ready, now))
        units += [unit(f"{number}-{i}", at, 5, consumed=now) for i, at in enumerate(done)]
        now += 1
    (window,) = measure(waits, units).windows
    assert window.fresh_only_wait_s == window.wait_s
    assert window.coverage == (0.0 if window.wait_s else None)


# -- the analytic figure -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("staleness", "every", "ahead", "covered"),
    [
        (0.3, 8, 2.4, 2),
        (0.5, 4, 2.0, 2),
        (0.29, 100, 29.0, 29),  # 28.999999999999996 in binary
        (0.1, 4, 0.4, 0),
        (1.5, 4, 6.0, 4),
        (0, 4, 0.0, 0),
    ],
)
def test_staleness_covers_the_first_trigger_steps(staleness, every, ahead, covered):
    found = analytic_coverage(staleness, every)
    assert (found.steps_ahead, found.steps_covered) == (ahead, covered)
    assert found.coverage == covered / every


def test_without_settings_there_is_no_analytic_figure():
    assert analytic_coverage(None, 4) is None
    assert analytic_coverage(0.5, None) is None
    assert measure(WAITS, UNITS).analytic is None


def test_settings_of_fully_async():
    config = {"async_training": {"staleness_threshold": 0.3, "trigger_parameter_sync_step": 8}}
    found = sync_settings(config)
    assert (found.staleness, found.sync_every, found.max_lag_versions) == (0.3, 8, None)
    assert found.sources == (
        "async_training.staleness_threshold",
        "async_training.trigger_parameter_sync_step",
    )
    assert measure(WAITS, UNITS, config=config).analytic.steps_covered == 2


def test_settings_of_separate_async():
    v1 = {
        "trainer_mode": "separate_async",
        "separate_async": {"parameter_sync_step": 4, "num_warmup_batches": 1.5},
        "sampler": {"max_off_policy_threshold": 8},
    }
    found = sync_settings({"trainer": {"v1": v1}})
    assert (found.staleness, found.sync_every, found.max_lag_versions) == (1.5, 4, 8)


def test_settings_that_a_mode_does_not_have_are_unknown():
    found = sync_settings({"trainer": {"v1": {"trainer_mode": "sync", "sync": {}}}})
    assert (found.staleness, found.sync_every, found.max_lag_versions) == (None, 1, None)
    assert sync_settings({}).sync_every is None
    assert sync_settings({}).sources == ()

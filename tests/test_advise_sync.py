"""What the advisor says of weight syncs, of validations beside them, and of the recording."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import balance, case, fired, sample, versions
from simulated import job

from rlinsight.analyzers.advise.rules import sync, update_size, validation

# -- validations ---------------------------------------------------------------------------

VALIDATES = {"validation_interval": 1, "validation": (6,), "max_num_seqs": 4, "group_size": 1,
             "costs": {"validation_requests": 24}}  # fmt: skip


def test_a_trainer_that_waits_for_validations_can_help():
    found = validation.trainer_validates(
        case(job(**VALIDATES), states={("trainer", "validate"): 0.06})
    )
    assert found.overrides == ("async_training.use_trainer_do_validate=true",)


@pytest.mark.parametrize("share", [0.04])
def test_short_validations_are_left_alone(share):
    told = validation.trainer_validates(
        case(job(**VALIDATES), states={("trainer", "validate"): share})
    )
    assert told == "validation takes 4.0% of the trainer's time"


def test_validations_that_take_long_can_be_fewer():
    found = validation.validation_interval(
        case(job(**VALIDATES), states={("trainer", "validate"): 0.11})
    )
    assert found.overrides == ("trainer.test_freq=2",)
    told = validation.validation_interval(
        case(job(**VALIDATES), states={("trainer", "validate"): 0.09})
    )
    assert "9.0%" in told


# -- how often is synchronized -------------------------------------------------------------


@pytest.mark.parametrize(("share", "fires"), [(0.09, True), (0.07, False)])
def test_syncs_that_take_long_can_be_fewer(share, fires):
    work = job(lengths=(2,), train_s=2.0, costs={"sync_s": 4.0}, staleness_threshold=1.0)
    found = sync.sync_cost(case(work, states={("trainer", "weight_sync"): share}))
    assert fires == (not isinstance(found, str))
    if fires:
        assert found.changes == {"sync_step": 2}


def test_validations_keep_their_pace_when_syncs_are_halved():
    asked = case(job(sync_step=2, validation_interval=6)).half_the_syncs()
    assert asked == {"sync_step": 4, "validation_interval": 3}
    oftener = case(job(sync_step=2, validation_interval=6)).twice_the_syncs()
    assert oftener == {"sync_step": 1, "validation_interval": 12}


def test_validations_are_never_made_fewer_by_the_way():
    """What fewer of them save would pass for the gain of fewer syncs."""
    assert case(job(validation_interval=5)).half_the_syncs()["validation_interval"] == 2
    work = job(lengths=(2,), train_s=2.0, costs={"sync_s": 4.0}, validation_interval=1)
    told = case(work, states={("trainer", "weight_sync"): 0.5})
    assert sync.sync_cost(told).startswith("each version is validated")


@pytest.mark.parametrize(
    ("waits", "pauses", "fires"), [(0.11, 0.11, True), (0.09, 0.5, False), (0.5, 0.09, False)]
)
def test_sides_that_take_turns_synchronize_half_as_often(waits, pauses, fires):
    work = job(lengths=(4,), train_s=3.0, costs={"sync_s": 2.0})
    found = update_size.sync_step(
        case(work, bubbles={("trainer", "wait_samples"): waits,
                            ("rollouter", "staleness_quota"): pauses})
    )  # fmt: skip
    assert fired(found) == fires
    if fires:
        assert found.overrides == ("async_training.trigger_parameter_sync_step=2",)


# -- how long a sync takes -----------------------------------------------------------------


def test_syncs_that_grow_are_told():
    report_of_syncs = sample("fully_async").sync
    kind = report_of_syncs.by_backend[report_of_syncs.main]
    trend = replace(kind.trend, growing=True, growth=2.5)
    grown = replace(report_of_syncs, by_backend={"nccl": replace(kind, trend=trend)})
    found = sync.sync_growth(case(None, sync=grown))
    assert "2.5 times" in found.says
    assert isinstance(sync.sync_growth(case(None)), str)


def moving(part: float, dominant: str = "transfer"):
    report = sample("fully_async").sync
    kind = replace(report.by_backend[report.main], syncs=10, total_s=10.0, dominant=dominant,
                   mean_s={"transfer": part})  # fmt: skip
    return replace(report, main="naive", by_backend={"naive": kind})


def on(kind: str):
    return replace(sample("fully_async").run, device_kinds=(kind,))


ENGINE = "actor_rollout_ref.rollout.checkpoint_engine"


def checkpoint_engine(**settings):
    return {"actor_rollout_ref": {"rollout": {"checkpoint_engine": settings}}}


@pytest.mark.parametrize(
    ("share", "part", "fires"), [(0.08, 0.5, True), (0.07, 0.5, False), (0.2, 0.49, False)]
)
def test_moving_weights_is_made_faster_where_it_is_what_takes_long(share, part, fires):
    config = checkpoint_engine(backend="naive", update_weights_bucket_megabytes=2048)
    found = sync.sync_transfer(
        case(None, config=config, states={("trainer", "weight_sync"): share}, sync=moving(part),
             run=on("cuda"))
    )  # fmt: skip
    assert fired(found) == fires
    if fires:
        assert found.overrides == (f"{ENGINE}.backend=nccl",)


@pytest.mark.parametrize(
    ("kind", "settings", "override"),
    [
        ("npu", {"backend": "naive"}, f"{ENGINE}.backend=nccl"),
        ("cuda", {"backend": "nccl", "update_weights_bucket_megabytes": 512},
         f"{ENGINE}.update_weights_bucket_megabytes=1024"),
        ("cuda", {"backend": "nccl", "update_weights_bucket_megabytes": 8192}, None),
        ("cpu", {"backend": "naive"}, None),
        ("emulated", {"backend": "nccl", "update_weights_bucket_megabytes": 512}, None),
    ],
)  # fmt: skip
def test_first_the_backend_then_the_buckets(kind, settings, override):
    found = sync.sync_transfer(
        case(None, config=checkpoint_engine(**settings), sync=moving(0.9), run=on(kind),
             states={("trainer", "weight_sync"): 0.2})
    )  # fmt: skip
    assert (found.overrides[0] if fired(found) else None) == override


# -- what a sync or the recording leaves behind --------------------------------------------


def test_a_replica_that_lags_behind_is_told_first():
    found = sync.stale_shard(case(None, balance=balance(versions=(versions(True),))))
    assert "`replica1` is 3 versions behind" in found.says
    assert found.effect is None
    told = sync.stale_shard(case(None, balance=balance(versions=(versions(False),))))
    assert told == "all replicas took every version"


@pytest.mark.parametrize(
    ("lagging", "says", "evidence"),
    [
        (False, "`replica1` never took 2 versions that a peer took: its", ["versions skipped"]),
        (True, "`replica1` is 3 versions behind its peers and never took 2 versions that a peer",
         ["versions behind", "versions skipped"]),
    ],
)  # fmt: skip
def test_a_replica_that_skipped_versions_and_caught_up_is_told_too(lagging, says, evidence):
    skipped = balance(versions=(versions(False), versions(lagging, (5, 6))))
    found = sync.stale_shard(case(None, balance=skipped))
    assert found.says.startswith(says)
    assert [one.what for one in found.evidence] == evidence
    whole = (0.0, sample("fully_async").run.duration_s)
    assert {one.windows for one in found.evidence} == {(whole,)}, "versions are of the whole run"


@pytest.mark.parametrize(("share", "fires"), [(0.021, True), (0.019, False), (None, False)])
def test_recording_must_not_be_what_is_tuned_for(share, fires):
    """What all processes take together is no part of the wall time: 100 of 0.5 % are 50 %."""
    trust = replace(sample("fully_async").trust, hook_share=0.5, hook_share_largest=share)
    assert fires == (not isinstance(sync.recording_overhead(case(None, trust=trust)), str))

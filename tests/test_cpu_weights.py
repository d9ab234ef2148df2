"""Weights from trainer ranks to receivers: bit by bit, through verl's own engine interface."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
if not importlib.util.find_spec("verl"):
    pytest.skip("verl is not installed", allow_module_level=True)

from rlinsight.runs.cpu import example, launch  # noqa: E402
from rlinsight.runs.cpu.example_tokenizer import VOCABULARY  # noqa: E402
from rlinsight.runs.cpu.transport.errors import RefusedError, WeightSyncError  # noqa: E402
from rlinsight.runs.cpu.transport.tensors import (  # noqa: E402
    ALIGNMENT_BYTES,
    DTYPES,
    Packer,
    Unpacker,
)

BUCKET_BYTES = 4096
SOON_S = 20.0


def weights_of(seed: int = 0) -> list[tuple[str, torch.Tensor]]:
    """Tensors of every dtype and awkward shape, one of them larger than a bucket."""
    random = torch.Generator().manual_seed(seed)

    def raw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        size = torch.empty(shape, dtype=dtype).nbytes
        bits = torch.randint(0, 2 if dtype is torch.bool else 256, (size,), generator=random)
        return bits.to(torch.uint8).view(dtype).view(shape)

    tensors = [(f"w.{name}", raw(7, 5, dtype=dtype)) for name, dtype in DTYPES.items()]
    large = raw(129, 100, dtype=torch.bfloat16)
    scalar, none = torch.tensor(1.5, dtype=torch.bfloat16), torch.empty(0, 3)
    return [*tensors, ("large", large), ("turned", large.t()), ("scalar", scalar), ("none", none)]


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return tensor.dtype, tuple(tensor.shape), flat.numpy().tobytes()


def packed(weights, bucket_bytes=BUCKET_BYTES):
    packer = Packer(bucket_bytes)
    buckets = [bucket for name, tensor in weights for bucket in packer.add(name, tensor)]
    last = packer.flush()
    return [*buckets, last] if last.entries else buckets


@pytest.mark.parametrize("bucket_bytes", [1, 64, 100, 4096, 1 << 20])
def test_every_dtype_and_shape_survives_any_bucket_size(bucket_bytes):
    buckets = packed(weights_of(), bucket_bytes)
    assert max(len(b.payload) for b in buckets) <= max(bucket_bytes, ALIGNMENT_BYTES)
    unpacker = Unpacker()
    arrived = [pair for b in buckets for pair in unpacker.take(b.entries, b.payload)]
    sent = weights_of()
    assert [name for name, _ in arrived] == [name for name, _ in sent]
    assert [bits(t) for _, t in arrived] == [bits(t) for _, t in sent]
    unpacker.finish({"tensors": len(sent), "bytes": sum(t.nbytes for _, t in sent)})


def test_a_dtype_that_cannot_be_sent_is_refused():
    with pytest.raises(WeightSyncError, match=r"`w` has dtype torch\.complex64"):
        packed([("w", torch.zeros(2, dtype=torch.complex64))])


GOOD = {"name": "w", "dtype": "float32", "shape": [4], "offset": 0, "bytes": 16, "start": 0}


@pytest.mark.parametrize(
    "lie",
    [
        {"dtype": "object"},
        {"dtype": ["float32"]},
        {"shape": [1 << 70]},
        {"shape": [-4]},
        {"shape": [True, 4]},
        {"shape": [1] * 17},
        {"shape": "4"},
        {"offset": 64},
        {"offset": 4},
        {"offset": -64},
        {"bytes": 32},
        {"bytes": 0},
        {"bytes": 8, "start": 12},
        {"start": 1.0},
    ],
)
def test_a_frame_that_contradicts_itself_is_refused(lie):
    assert len(list(Unpacker().take([GOOD], bytearray(16)))) == 1
    with pytest.raises(WeightSyncError):
        list(Unpacker().take([GOOD | lie], bytearray(16)))


@pytest.mark.parametrize("entries", [None, "text", [None], [[]], [{}]])
def test_a_frame_that_lists_no_tensors_is_refused(entries):
    with pytest.raises(WeightSyncError):
        list(Unpacker().take(entries, bytearray(16)))


def test_parts_out_of_order_or_missing_are_noticed():
    first = GOOD | {"bytes": 8}
    second = GOOD | {"bytes": 8, "start": 8}
    unpacker = Unpacker()
    assert not list(unpacker.take([first], bytearray(8)))
    with pytest.raises(WeightSyncError, match="expected `w` from byte 8"):
        list(unpacker.take([first], bytearray(8)))
    with pytest.raises(WeightSyncError, match="came before all of `w`"):
        list(unpacker.take([GOOD], bytearray(16)))
    with pytest.raises(WeightSyncError, match="the trainer sent"):
        unpacker.finish({"tensors": 0, "bytes": 0})
    assert len(list(unpacker.take([second], bytearray(8)))) == 1
    unpacker.finish({"tensors": 1, "bytes": 16})


# The engine, driven as verl drives it: prepare, topology, connect, send and receive, finalize.


@pytest.fixture(scope="module")
def engine_class():
    os.environ.update(launch.environment("the secret of this run"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rlinsight.runs.cpu.weights import TcpCheckpointEngine
    yield TcpCheckpointEngine
    for name in launch.environment("x" * 16):
        os.environ.pop(name, None)


class Cluster:
    """Trainer ranks and receivers, each connecting in a thread of its own as in its process."""

    def __init__(self, engine_class, trainers: int, receivers: int, **options) -> None:
        options = {"host": "127.0.0.1", "connect_timeout_s": SOON_S, "timeout_s": SOON_S} | options
        make = engine_class
        self.trainers = [make(BUCKET_BYTES, is_master=not i, **options) for i in range(trainers)]
        self.receivers = [make(BUCKET_BYTES, **options) for _ in range(receivers)]
        self.build_topology = make.build_topology

    def connect(self, before=lambda offer: None) -> None:
        offers = [engine.prepare() for engine in (*self.trainers, *self.receivers)]
        before(offers[0])
        arguments = self.build_topology(len(self.trainers), len(self.receivers), offers)
        with ThreadPoolExecutor(len(offers)) as pool:
            jobs = [
                pool.submit(engine.init_process_group, **{k: v[i] for k, v in given.items()})
                for engines, given in zip((self.trainers, self.receivers), arguments, strict=True)
                for i, engine in enumerate(engines)
            ]
            for job in jobs:
                job.result()

    def sync(self, weights) -> tuple[list[dict[str, float]], list[list]]:
        """Send and receive at once; return the senders' figures and what each receiver got."""

        async def everything():
            sends = [t.send_weights(iter(weights)) for t in self.trainers]
            takes = [self._take(r) for r in self.receivers]
            results = await asyncio.gather(*sends, *takes)
            return results[: len(sends)], results[len(sends) :]

        return asyncio.run(everything())

    async def _take(self, receiver) -> list:
        return [(name, bits(tensor)) async for name, tensor in receiver.receive_weights()]

    def close(self) -> None:
        for engine in (*self.trainers, *self.receivers):
            engine.finalize()


@pytest.fixture
def cluster(engine_class):
    made = []

    def make(trainers=1, receivers=1, **options) -> Cluster:
        made.append(Cluster(engine_class, trainers, receivers, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def expected(weights):
    return [(name, bits(tensor)) for name, tensor in weights]


def test_several_trainer_ranks_and_receivers_sync_twice(cluster):
    run = cluster(trainers=2, receivers=3)
    for version in range(2):
        run.connect()
        figures, arrived = run.sync(weights_of(version))
        assert arrived == [expected(weights_of(version))] * 3
        assert figures[0]["checkpoint_engine/tensors"] == len(weights_of())
        assert figures[0]["checkpoint_engine/bytes"] == sum(t.nbytes for _, t in weights_of())
        assert figures[1] == {}
        for engine in (*run.trainers, *run.receivers):
            engine.finalize()


def test_a_wrong_secret_and_garbage_neither_stall_nor_corrupt_a_sync(cluster, engine_class):
    run = cluster(receivers=2)
    strangers: list[socket.socket] = []

    def attack(offer) -> None:
        address = (offer["host"], offer["port"])
        for payload in (b"", b"\x80\x04\x95" * 4096, bytes(68), b"RLW1" + b"\xff" * 4096):
            strangers.append(socket.create_connection(address, timeout=SOON_S))
            strangers[-1].sendall(payload)
        os.environ["RLINSIGHT_SECRET"] = "the secret of another run"
        stranger = engine_class(BUCKET_BYTES, host="127.0.0.1")
        os.environ["RLINSIGHT_SECRET"] = "the secret of this run"
        with pytest.raises(RefusedError, match="RLINSIGHT_SECRET"):
            stranger.init_process_group(role="receiver", rank=0, receivers=2, **offer)

    run.connect(before=attack)
    _, arrived = run.sync(weights_of())
    assert arrived == [expected(weights_of())] * 2
    for sock in strangers:
        sock.close()


def test_without_a_secret_no_engine_is_made(engine_class, monkeypatch):
    monkeypatch.delenv("RLINSIGHT_SECRET")
    with pytest.raises(Exception, match="`RLINSIGHT_SECRET`, found 0"):
        engine_class(BUCKET_BYTES)


def test_a_trainer_that_fails_half_way_ends_its_receivers(cluster):
    run = cluster()
    run.connect()

    def broken():
        yield from weights_of()[:-3]
        raise ValueError("gathering failed")

    async def both():
        take = asyncio.ensure_future(run._take(run.receivers[0]))
        with pytest.raises(ValueError, match="gathering failed"):
            await run.trainers[0].send_weights(broken())
        with pytest.raises(WeightSyncError, match="closed the connection"):
            await take

    asyncio.run(both())


def test_a_receiver_that_fails_half_way_ends_the_trainer(cluster):
    run = cluster()
    run.connect()

    async def give_up():
        weights = run.receivers[0].receive_weights()
        await anext(weights)
        await weights.aclose()

    async def both():
        quitting = asyncio.ensure_future(give_up())
        with pytest.raises(WeightSyncError, match="receiver 0"):
            await run.trainers[0].send_weights(iter(weights_of()))
        await quitting

    asyncio.run(both())


def test_a_silent_trainer_is_reported_after_the_timeout(cluster):
    run = cluster(timeout_s=0.3)
    run.connect()
    with pytest.raises(WeightSyncError, match=r"no weights came within 0\.3 s"):
        asyncio.run(run._take(run.receivers[0]))


def test_two_senders_are_a_mistake(engine_class):
    with pytest.raises(WeightSyncError, match="expected one trainer rank that sends, found 2"):
        engine_class.build_topology(2, 1, [{"port": 1}, {"port": 2}, None])


def test_verl_finds_platform_engine_and_vllm():
    """In a process of its own: verl decides about its platform once, when it is imported."""
    environment = {**os.environ, **launch.environment("the secret of this run")}
    out = subprocess.run(
        [sys.executable, "-c", LOADED_BY_VERL], env=environment, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr[-2000:]


LOADED_BY_VERL = """
import torch, verl
from importlib.metadata import version
from verl.checkpoint_engine.base import CheckpointEngineRegistry
from verl.utils.device import get_device_id, get_device_name, get_torch_device
from verl.utils.import_utils import import_external_libs
from rlinsight.runs.cpu import launch

assert get_device_name() == "cpu"
assert torch.zeros(1).to(get_device_id()).device == torch.device("cpu")
assert torch.device(f"{get_device_name()}:{get_device_id()}").index == 0
assert get_torch_device().max_memory_allocated() > 0
assert get_torch_device().Stream is torch.cpu.Stream
import_external_libs(launch.WEIGHT_ENGINE_MODULE)
assert CheckpointEngineRegistry.get(launch.WEIGHT_ENGINE).__name__ == "TcpCheckpointEngine"
assert "cpu" in version("vllm")
from verl.utils.distributed import initialize_global_process_group_ray
assert hasattr(initialize_global_process_group_ray, "__wrapped__")
"""


def test_every_patch_fits_the_installed_packages():
    """A release that changes a target must be noticed here, not in the middle of a run."""
    from rlinsight.runs.cpu.patches import PATCHES

    for entry in PATCHES:
        if entry.module.startswith("vllm"):
            pytest.importorskip("vllm")
        module = importlib.import_module(entry.module)
        function = getattr(module, entry.function)
        original = getattr(function, "__wrapped__", function)
        setattr(module, entry.function, original)
        try:
            assert entry.obstacle(module) is None
            assert entry.apply(module)
        finally:
            setattr(module, entry.function, function)


def test_saved_parameters_do_not_follow_the_live_ones(engine_class):
    """What the patch is for: FSDP2's save on the CPU returned the parameter itself."""
    from rlinsight.runs.cpu.patches import PATCHES

    (entry,) = [p for p in PATCHES if p.name == "fsdp2_save_to_cpu"]
    live = torch.ones(3)
    save = entry.replace(lambda model: ({"w": (model.detach().cpu(), "spec")}, "spec"))
    shards, spec = save(live)
    live.zero_()
    assert torch.equal(shards["w"][0], torch.ones(3))
    assert (shards["w"][1], spec) == ("spec", "spec")


# The generated example, as transformers reads it.


@pytest.fixture(scope="module")
def example_model(tmp_path_factory):
    return example.generate(tmp_path_factory.mktemp("example")).model


@pytest.fixture(scope="module")
def tokenizer(example_model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(example_model)


def test_every_character_is_one_token_and_comes_back(tokenizer):
    text = "\n0123456789 +-*=.,:?!abcxyz"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert len(tokenizer) == len(VOCABULARY)


def test_a_prompt_is_framed_and_open_for_the_answer(tokenizer):
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "3+4="}], add_generation_prompt=True, return_dict=False
    )
    framed = "<|im_start|>user\n3+4=<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(ids) == framed


def test_the_untrained_model_stops_after_the_intended_length(example_model, tokenizer):
    """Chance to stop per token, over random contexts: 1 / mean length, within a fifth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(example_model, dtype=torch.float32)
    context = torch.randint(0, len(tokenizer), (8, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        stop = model(context).logits.softmax(-1)[..., tokenizer.eos_token_id].mean().item()
    assert 1 / stop == pytest.approx(example.MEAN_LENGTH_TOKENS, rel=0.2)

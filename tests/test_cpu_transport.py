"""The weight sync's transport, over real sockets, with peers that belong to the run and others."""

from __future__ import annotations

import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlinsight.runs.cpu.transport import admission, handshake, link, wire
from rlinsight.runs.cpu.transport.admission import Admission
from rlinsight.runs.cpu.transport.errors import ClosedError, RefusedError, WeightSyncError
from rlinsight.runs.cpu.transport.hub import Hub
from rlinsight.runs.cpu.transport.wire import Channel, Deadline, Kind

HOST = "127.0.0.1"
SECRET = b"the secret of this run"
SOON_S = 20.0


@pytest.fixture
def gate():
    gate = Admission(HOST, SECRET)
    yield gate
    gate.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(16) as pool:
        yield pool


def join(gate: Admission, rank: int, *, secret=SECRET, session=None, timeout_s=SOON_S) -> Channel:
    session = session or gate.session
    return link.connect(
        HOST, gate.port, secret=secret, session=session, rank=rank, timeout_s=timeout_s
    )


def dial(gate: Admission) -> socket.socket:
    return socket.create_connection((HOST, gate.port), timeout=SOON_S)


def pair() -> tuple[Channel, Channel, socket.socket, socket.socket]:
    """Two ends of a connection, and the sockets below them."""
    left, right = socket.socketpair()
    one = Channel(left, send_key=b"a" * 32, receive_key=b"b" * 32)
    other = Channel(right, send_key=b"b" * 32, receive_key=b"a" * 32)
    return one, other, left, right


def receive(channel: Channel, limit: int = 1 << 20) -> wire.Frame:
    return channel.receive(max_payload_bytes=limit, deadline=Deadline(SOON_S))


def use(channel: Channel) -> list[wire.Frame]:
    """Be a receiver: take and acknowledge everything up to the end."""
    frames = []
    while not frames or frames[-1].kind is not Kind.END:
        frames.append(receive(channel))
        channel.send(Kind.ACK, deadline=Deadline(SOON_S))
    channel.close()
    return frames


def test_every_receiver_gets_every_frame(gate, pool):
    receivers = [pool.submit(lambda rank=rank: use(join(gate, rank))) for rank in range(3)]
    hub = Hub(gate.take(3, SOON_S), timeout_s=SOON_S)
    hub.send(Kind.TENSORS, ["first"], b"\x00\xff" * 500_000)
    hub.send(Kind.END, {"tensors": 1})
    for receiver in receivers:
        first, last = receiver.result()
        assert (first.text, bytes(first.payload)) == (["first"], b"\x00\xff" * 500_000)
        assert last.text == {"tensors": 1}
    hub.close()


def test_the_port_is_bound_to_the_given_address_only(gate):
    other = "127.0.0.2"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((other, gate.port), timeout=SOON_S)


def test_nobody_can_connect_once_all_receivers_are_there(gate, pool):
    receiver = pool.submit(join, gate, 0)
    channels = gate.take(1, SOON_S)
    with pytest.raises(ConnectionRefusedError):
        dial(gate)
    channels[0].close()
    receiver.result().close()


@pytest.mark.parametrize(
    "wrong", [{"secret": b"the secret of another run"}, {"session": bytes(16)}]
)
def test_a_peer_of_another_run_is_refused_and_the_sync_goes_on(gate, pool, wrong):
    with pytest.raises(RefusedError, match=r"receiver 0 .* same RLINSIGHT_SECRET"):
        join(gate, 0, **wrong)
    receiver = pool.submit(lambda: use(join(gate, 0)))
    hub = Hub(gate.take(1, SOON_S), timeout_s=SOON_S)
    hub.send(Kind.END, None)
    assert [frame.kind for frame in receiver.result()] == [Kind.END]
    hub.close()


def test_garbage_and_silent_peers_do_not_keep_a_receiver_out(gate, pool):
    silent = [dial(gate) for _ in range(5)]
    loud = dial(gate)
    loud.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
    receiver = pool.submit(lambda: use(join(gate, 0)))
    hub = Hub(gate.take(1, SOON_S), timeout_s=SOON_S)
    hub.send(Kind.END, None)
    assert len(receiver.result()) == 1
    for sock in (*silent, loud):
        sock.close()
    hub.close()


def test_a_flood_of_silent_peers_is_bounded_and_evicted(gate, pool):
    flood = [dial(gate) for _ in range(2 * admission.MAX_PENDING)]
    receiver = pool.submit(join, gate, 0)
    taken = gate.take(1, SOON_S)
    # The oldest was sent away long before its handshake was over: greeting, then the end.
    flood[0].settimeout(SOON_S)
    while flood[0].recv(4096):
        pass
    for sock in flood:
        sock.close()
    taken[0].close()
    receiver.result().close()


def test_a_stranger_learns_nothing_but_a_nonce(gate):
    stranger = dial(gate)
    stranger.sendall(bytes(68))
    received = b""
    while chunk := stranger.recv(4096):
        received += chunk
    stranger.close()
    greeting, verdict = received[:40], received[40:]
    assert greeting.startswith(b"RLWSYNC1")
    assert verdict == bytes(33)


def test_a_recorded_handshake_cannot_be_replayed(gate, pool):
    answer = _record_answer(gate)
    replay = dial(gate)
    replay.recv(40, socket.MSG_WAITALL)
    replay.sendall(answer)
    assert replay.recv(33, socket.MSG_WAITALL)[0] == 0
    replay.close()


def _record_answer(gate: Admission) -> bytes:
    """What a true receiver answers to a listener of the eavesdropper's own."""
    with socket.create_server((HOST, 0)) as trap, ThreadPoolExecutor(1) as pool:
        victim = pool.submit(
            link.connect, HOST, trap.getsockname()[1],
            secret=SECRET, session=gate.session, rank=0, timeout_s=SOON_S,
        )  # fmt: skip
        sock, _ = trap.accept()
        sock.sendall(b"RLWSYNC1" + bytes(32))
        answer = sock.recv(68, socket.MSG_WAITALL)
        sock.sendall(b"\x01" + bytes(32))
        with pytest.raises(RefusedError, match="did not prove"):
            victim.result()
        sock.close()
    return answer


def test_a_receiver_trusts_no_trainer_without_the_secret(pool):
    impostor = Admission(HOST, b"not the secret at all")
    try:
        with pytest.raises(RefusedError):
            join(impostor, 0)
    finally:
        impostor.close()


def test_a_receiver_says_when_something_else_listens():
    with socket.create_server((HOST, 0)) as web, ThreadPoolExecutor(1) as pool:
        port = web.getsockname()[1]
        caller = pool.submit(
            link.connect, HOST, port,
            secret=SECRET, session=bytes(16), rank=4, timeout_s=SOON_S,
        )  # fmt: skip
        sock, _ = web.accept()
        sock.sendall(b"HTTP/1.1 400 Bad Request" + bytes(99))
        with pytest.raises(RefusedError, match="no trainer"):
            caller.result()
        sock.close()


def test_missing_receivers_are_named_with_the_last_refusal(gate, pool):
    present = pool.submit(join, gate, 1)
    with pytest.raises(RefusedError):
        join(gate, 0, secret=b"wrong secret of somebody")
    present.result()
    with pytest.raises(WeightSyncError, match=r"rank\(s\) 0, 2 did not come.*1 peer\(s\) refused"):
        gate.take(3, 0.2)
    present.result().close()


def test_an_unreachable_trainer_is_reported_with_its_address():
    with socket.create_server((HOST, 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(WeightSyncError, match=rf"receiver 2 .* {HOST}:{port} within 0.3 s"):
        link.connect(HOST, port, secret=SECRET, session=bytes(16), rank=2, timeout_s=0.3)


def test_a_receiver_that_tries_again_takes_its_own_place(gate, pool):
    first = join(gate, 0)
    second = pool.submit(lambda: use(join(gate, 0)))
    with pytest.raises(ClosedError):
        receive(first)
    first.close()
    hub = Hub(gate.take(1, SOON_S), timeout_s=SOON_S)
    hub.send(Kind.END, None)
    assert len(second.result()) == 1
    hub.close()


def test_a_receiver_that_does_not_acknowledge_is_named(gate, pool):
    lazy, busy = pool.submit(join, gate, 0), pool.submit(lambda: use(join(gate, 1)))
    hub = Hub(gate.take(2, SOON_S), timeout_s=0.5)
    with pytest.raises(WeightSyncError, match=r"receiver 0: did not .* 0.5 s") as caught:
        hub.send(Kind.END, None)
    assert "receiver 1" not in str(caught.value)
    assert len(busy.result()) == 1
    lazy.result().close()
    hub.close()


def test_a_receiver_that_dies_is_named(gate, pool):
    dying = pool.submit(join, gate, 0)
    hub = Hub(gate.take(1, SOON_S), timeout_s=SOON_S)
    dying.result().close()
    with pytest.raises(WeightSyncError, match="receiver 0"):
        hub.send(Kind.TENSORS, [], bytes(1 << 22))
    hub.close()


def test_a_trainer_that_dies_ends_the_wait(gate, pool):
    channel = pool.submit(join, gate, 0)
    hub = Hub(gate.take(1, SOON_S), timeout_s=SOON_S)
    waiting = pool.submit(receive, channel.result())
    hub.close()
    with pytest.raises(ClosedError):
        waiting.result(SOON_S)
    channel.result().close()


def test_an_oversized_frame_is_refused_before_it_is_read():
    one, other, raw, _ = pair()
    raw.sendall(struct.pack(">4sBQIQ", b"RLW1", Kind.TENSORS, 0, 2, 1 << 60))
    with pytest.raises(WeightSyncError, match=f"announces 2 \\+ {1 << 60} bytes"):
        receive(other)
    one.close(), other.close()


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ((b"RLW1", Kind.TENSORS, 0, 1 << 31, 0), "announces"),
        ((b"RLW1", Kind.TENSORS, 7, 2, 0), "expected frame 0, found frame 7"),
        ((b"RLW1", 99, 0, 2, 0), "expected a frame"),
        ((b"\x80\x04\x95\x00", 0, 0, 2, 0), "expected a frame"),
    ],
)
def test_a_foreign_header_is_refused(header, message):
    one, other, raw, _ = pair()
    raw.sendall(struct.pack(">4sBQIQ", *header))
    with pytest.raises(WeightSyncError, match=message):
        receive(other)
    one.close(), other.close()


def test_a_changed_byte_is_noticed():
    left, middle = socket.socketpair()
    middle_out, right = socket.socketpair()
    sender = Channel(left, send_key=b"k" * 32, receive_key=b"k" * 32)
    receiver = Channel(right, send_key=b"k" * 32, receive_key=b"k" * 32)
    sender.send(Kind.TENSORS, [], b"weights", deadline=Deadline(SOON_S))
    passing = bytearray(middle.recv(4096))
    passing[passing.index(b"weights")] ^= 1
    middle_out.sendall(passing)
    with pytest.raises(WeightSyncError, match="MAC is wrong"):
        receive(receiver)
    for sock in (left, middle, middle_out, right):
        sock.close()


def test_a_frame_cannot_be_sent_back_or_twice():
    one, other, raw, other_raw = pair()
    one.send(Kind.ACK, deadline=Deadline(SOON_S))
    frame = other_raw.recv(4096)
    other_raw.sendall(frame)  # reflected: our own key did not sign it
    with pytest.raises(WeightSyncError, match="MAC is wrong"):
        receive(one)
    raw.sendall(frame * 2)
    assert receive(other).kind is Kind.ACK
    with pytest.raises(WeightSyncError, match="expected frame 1, found frame 0"):
        receive(other)
    one.close(), other.close()


def test_a_slow_peer_cannot_stretch_a_deadline():
    """One byte at a time resets no clock: the deadline counts from the start."""
    left, right = socket.socketpair()
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            try:
                left.send(b"x")
            except OSError:
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    with pytest.raises(TimeoutError):
        wire.read_exactly(right, 1 << 20, Deadline(0.3))
    stop.set()
    dripping.join()
    left.close(), right.close()


def test_both_ends_derive_the_same_keys_and_others_in_another_handshake():
    proofs = set()
    for _ in range(2):
        left, right = socket.socketpair()
        with ThreadPoolExecutor(1) as pool:
            trainer = pool.submit(
                handshake.as_trainer, left, secret=SECRET, session=b"s" * 16,
                deadline=Deadline(SOON_S),
            )  # fmt: skip
            channel = handshake.as_receiver(
                right, secret=SECRET, session=b"s" * 16, rank=5, deadline=Deadline(SOON_S)
            )
            rank, other = trainer.result()
        assert rank == 5
        other.send(Kind.ACK, deadline=Deadline(SOON_S))
        frame = right.recv(4096)
        proofs.add(frame[-wire.MAC_BYTES :])
        left.sendall(frame)
        assert receive(channel).kind is Kind.ACK
        left.close(), right.close()
    assert len(proofs) == 2


def test_closing_while_peers_wait_leaves_no_thread(pool):
    before = threading.active_count()
    gate = Admission(HOST, SECRET)
    waiting = [dial(gate) for _ in range(4)]
    gate.close()
    end = time.monotonic() + SOON_S
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before
    for sock in waiting:
        sock.close()

"""Ascend NPUs through the driver's DCMI library: a few calls per chip, no process started.

The prototypes are those of the vendor's DCMI reference. Until the A3 a chip is named by
(card, chip); the 950 has only the second generation of calls, named by the logical id.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rlinsight.collectors.devices.board import Unsupported
from rlinsight.collectors.devices.source import SourceMissing

if TYPE_CHECKING:
    from rlinsight.collectors.devices.board import Board

#: Where drivers put the library when the loader does not find it.
_PATHS: Final = (
    "libdcmi.so",
    "/usr/local/dcmi/libdcmi.so",
    "/usr/local/Ascend/driver/lib64/driver/libdcmi.so",
    "/usr/local/Ascend/driver/lib64/libdcmi.so",
)
_MAX_CARDS: Final = 64
_NOT_SUPPORTED: Final = frozenset({-8255, -8013})  # not at all, not in a container
_MB: Final = 1 << 20
_AICORE, _HBM_BANDWIDTH = 2, 10
_HEALTH: Final = {0: "OK", 1: "Warning", 2: "Alarm", 3: "Critical"}


class _HbmInfo(ctypes.Structure):
    _fields_ = (
        ("total_mb", ctypes.c_ulonglong),
        ("frequency_mhz", ctypes.c_uint),
        ("used_mb", ctypes.c_ulonglong),
        ("temperature_c", ctypes.c_int),
        ("bandwidth_percent", ctypes.c_uint),
    )


@dataclass(frozen=True)
class _Chip:
    """A chip, and the arguments by which the library's calls name it."""

    logical: int
    address: tuple[int, ...]


class Dcmi:
    """Reads every chip of the host; which of its figures exist differs by generation."""

    name = "npu"
    # A utilization query has been seen to take 36 ms a chip on a 910B; a host has up to 16.
    shortest_s = 1.0

    def __init__(self, node: str, library: Any) -> None:
        self._node = node
        self._calls = _Calls(library)
        self._health: dict[str, str] = {}
        self._chips = self._calls.chips()
        self._noted = False
        self.device_uuids: dict[str, str] = {}

    def sample(self, board: Board) -> None:
        """Write the figures of every chip, each query guarded on its own."""
        self._note(board)
        for chip in self._chips:
            board.stamp()
            self._sample(board, f"{self._node}/{chip.logical}", chip)

    def close(self) -> None:
        """The library has no counterpart to its initialization."""

    def _sample(self, board: Board, lane: str, chip: _Chip) -> None:
        ask, calls = board.ask, self._calls
        busy = ask(lane, "aicore", lambda: calls.percent(chip, _AICORE))
        board.put("device_utilization", busy, lane)
        board.put("device_power_w", ask(lane, "power", lambda: calls.power_w(chip)), lane)
        temperature = ask(lane, "temperature", lambda: calls.temperature_c(chip))
        board.put("device_temperature_c", temperature, lane)
        hbm = ask(lane, "hbm", lambda: calls.hbm(chip))
        if hbm is not None:
            board.put("device_memory_used_bytes", hbm.used_mb * _MB, lane)
            board.put("device_memory_total_bytes", hbm.total_mb * _MB, lane)
            board.put("device_memory_bandwidth_utilization", hbm.bandwidth_percent / 100, lane)
        self._check_health(board, lane, ask(lane, "health", lambda: calls.health(chip)))

    def _check_health(self, board: Board, lane: str, health: str | None) -> None:
        if health is not None and health != self._health.get(lane, "OK"):
            board.mark("health", lane, health)
        if health is not None:
            self._health[lane] = health

    def _note(self, board: Board) -> None:
        if self._noted:
            return
        self._noted = True
        for card, reason in self._calls.lost.items():
            board.gap(self._node, f"card {card}", reason)
        facts = {
            f"{self._node}/{chip.logical}": {
                "kind": "npu",
                "address": list(chip.address),
                "utilization_column": "AICore(%)",
                "source": f"dcmi v{self._calls.generation}",
            }
            for chip in self._chips
        }
        board.note("sampled_devices", facts)


class _Calls:
    """The calls of one generation of the library. Raises Unsupported or OSError."""

    def __init__(self, library: Any) -> None:
        self._library = library
        #: Cards that are listed and cannot be asked, and why: a container may see all cards and
        #: have some, and a broken one must not take the others with it.
        self.lost: dict[int, str] = {}
        self.generation = 1
        problems = []
        for generation in (1, 2):  # a 950 refuses the first, older chips lack the second
            self.generation = generation
            try:
                self._call("init")
                return
            except (Unsupported, OSError) as error:
                problems.append(f"v{generation}: {error}")
        raise SourceMissing(f"DCMI cannot be initialized ({'; '.join(problems)})")

    def chips(self) -> list[_Chip]:
        """Return the chips, ordered by logical id."""
        found = self._listed() if self.generation == 2 else self._in_cards()
        return sorted(found, key=lambda chip: chip.logical)

    def percent(self, chip: _Chip, what: int) -> float:
        """Return a utilization as a fraction."""
        return self._scalar("get_device_utilization_rate", ctypes.c_uint(), chip, what) / 100

    def power_w(self, chip: _Chip) -> float:
        """Return the power; the library counts in tenths of a watt."""
        return self._scalar("get_device_power_info", ctypes.c_int(), chip) / 10

    def temperature_c(self, chip: _Chip) -> float:
        """Return the temperature of the chip."""
        return self._scalar("get_device_temperature", ctypes.c_int(), chip)

    def health(self, chip: _Chip) -> str:
        """Return the state in the words of `npu-smi`."""
        code = int(self._scalar("get_device_health", ctypes.c_uint(), chip))
        return _HEALTH.get(code, f"UNKNOWN ({code})")

    def hbm(self, chip: _Chip) -> _HbmInfo:
        """Return size and use of the on-chip memory."""
        info = _HbmInfo()
        self._call("get_device_hbm_info", *chip.address, ctypes.byref(info))
        return info

    def _scalar(self, call: str, into: Any, chip: _Chip, *more: int) -> float:
        self._call(call, *chip.address, *more, ctypes.byref(into))
        return float(into.value)

    def _listed(self) -> list[_Chip]:
        ids, count = (ctypes.c_int * _MAX_CARDS)(), ctypes.c_int()
        self._call("get_device_list", ids, ctypes.byref(count), _MAX_CARDS)
        return [_Chip(logical, (logical,)) for logical in ids[: count.value]]

    def _in_cards(self) -> list[_Chip]:
        cards, count = (ctypes.c_int * _MAX_CARDS)(), ctypes.c_int()
        self._call("get_card_list", ctypes.byref(count), cards, _MAX_CARDS)
        chips: list[_Chip] = []
        for card in cards[: count.value]:
            try:
                chips += self._of_card(card)
            except (Unsupported, OSError) as error:
                self.lost[card] = str(error)
        return chips

    def _of_card(self, card: int) -> list[_Chip]:
        number, controller, cpu = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        outputs = (ctypes.byref(number), ctypes.byref(controller), ctypes.byref(cpu))
        self._call("get_device_id_in_card", card, *outputs)
        chips = []
        for place in range(number.value):
            logical = ctypes.c_int()
            self._call("get_device_logic_id", ctypes.byref(logical), card, place)
            chips.append(_Chip(logical.value, (card, place)))
        return chips

    def _call(self, name: str, *arguments: Any) -> None:
        symbol = f"dcmi{'v2' if self.generation == 2 else ''}_{name}"
        try:
            function: Callable[..., int] = getattr(self._library, symbol)
        except AttributeError:
            raise Unsupported(f"the library has no `{symbol}`") from None
        code = function(*arguments)
        if code in _NOT_SUPPORTED:
            raise Unsupported(f"`{symbol}` is not supported here ({code})")
        if code != 0:
            raise OSError(f"`{symbol}` returned {code}")


def open_dcmi(node: str) -> Dcmi:
    """Return the source, or raise SourceMissing when there is no library or no chip."""
    # A host without NPU is left in peace: loading a driver library is not free.
    for path in _PATHS:
        if os.sep in path and not os.path.exists(path):  # noqa: PTH110
            continue
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        try:
            source = Dcmi(node, library)
        except (Unsupported, OSError) as error:
            raise SourceMissing(f"{path}: {error}") from error
        if source._chips:
            return source
        lost = "".join(f"; card {card}: {why}" for card, why in source._calls.lost.items())
        raise SourceMissing(f"{path} lists no chip{lost}")
    raise SourceMissing("no libdcmi.so")

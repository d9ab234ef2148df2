"""Ascend NPUs through the `npu-smi` tool, for hosts whose DCMI library cannot be used."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from rlinsight.collectors.devices import ascend
from rlinsight.collectors.devices.npu_ids import device_ids, parse_mapping
from rlinsight.collectors.devices.source import SourceMissing

if TYPE_CHECKING:
    from rlinsight.collectors.devices.board import Board

_TIMEOUT_S: Final = 20.0


class NpuSmi:
    """Runs `npu-smi info` for every sample: a process each time, so at most every 2 s."""

    name = "npu"
    shortest_s = 2.0

    def __init__(self, node: str, tool: str) -> None:
        self._node, self._tool = node, tool
        self._mapping: dict[tuple[int, int | None], int] = {}
        self._health: dict[str, str | None] = {}
        self._noted = False
        self.device_uuids: dict[str, str] = {}  # the tool prints none
        try:
            self._mapping = parse_mapping(self._run("info", "-m"))
        except (OSError, subprocess.SubprocessError):
            pass  # the order of the table then stands for the numbering

    def sample(self, board: Board) -> None:
        """Write the figures of every chip; a chip that vanished from the table is a gap."""
        readings = board.ask(self._node, "npu-smi info", self._read)
        if readings is None:
            return
        board.stamp()
        ids = device_ids(readings, self._mapping)
        if not self._mapping:  # a chip that drops out must not give its place to the next one
            keys = ((reading.npu, reading.chip) for reading in readings)
            self._mapping = {key: int(name) for key, name in zip(keys, ids, strict=True)}
        seen = {f"{self._node}/{name}": row for name, row in zip(ids, readings, strict=True)}
        self._note(board, seen)
        for lane, reading in seen.items():
            self._write(board, lane, reading)
        for lane in self._health.keys() - seen.keys():
            board.gap(lane, "npu-smi info", "the chip is not in the table any more")

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self) -> list[ascend.NpuReading]:
        text = self._run("info")
        readings = ascend.parse_info(text)
        if not readings:
            raise ValueError(f"no device table in {text.strip()[:120]!r}")
        return readings

    def _run(self, *arguments: str) -> str:
        command = [self._tool, *arguments]
        finished = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if finished.returncode:
            said = (finished.stderr or finished.stdout).strip()[:120]
            raise ChildProcessError(f"exit code {finished.returncode}: {said}")
        return finished.stdout

    def _note(self, board: Board, seen: dict[str, ascend.NpuReading]) -> None:
        if self._noted:
            return
        self._noted = True
        facts = {
            lane: {
                "kind": "npu",
                "name": reading.name,
                "npu": reading.npu,
                "chip": reading.chip,
                "phy_id": reading.phy_id,
                "memory_total_bytes": reading.hbm_total_bytes,
                "utilization_column": reading.utilization_column,
                "source": "npu-smi",
            }
            for lane, reading in seen.items()
        }
        board.note("sampled_devices", facts)

    def _write(self, board: Board, lane: str, reading: ascend.NpuReading) -> None:
        board.answered(lane, "npu-smi info")
        board.put("device_utilization", reading.aicore_ratio, lane)
        board.put("device_memory_used_bytes", reading.hbm_used_bytes, lane)
        board.put("device_memory_total_bytes", reading.hbm_total_bytes, lane)
        board.put("device_power_w", reading.power_w, lane)
        board.put("device_temperature_c", reading.temp_c, lane)
        if reading.health != self._health.get(lane, "OK"):
            board.mark("health", lane, reading.health)
        self._health[lane] = reading.health


def open_npu_smi(node: str) -> NpuSmi:
    """Return the source, or raise SourceMissing when the tool is not on PATH."""
    tool = shutil.which("npu-smi")
    if tool is None:
        raise SourceMissing("no `npu-smi` on PATH")
    return NpuSmi(node, tool)

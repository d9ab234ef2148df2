"""Ascend: tables as the tool printed them, the tool on PATH, and the driver's library."""

from __future__ import annotations

import ctypes
import sys
import types

import pytest
from device_stubs import DATA, Recording, compiled, npu_smi

from rlinsight.collectors.devices import ascend, dcmi, npu
from rlinsight.collectors.devices.allocator import torch_npu_memory
from rlinsight.collectors.devices.ascend import NpuReading, NpuUsage
from rlinsight.collectors.devices.dcmi import Dcmi
from rlinsight.collectors.devices.npu_ids import device_ids, parse_mapping
from rlinsight.collectors.devices.npu_smi import NpuSmi, open_npu_smi
from rlinsight.collectors.devices.source import SourceMissing

FILES = DATA / "npu_smi"
MIB = 1 << 20


def read(name: str) -> str:
    return (FILES / name).read_text()


def test_a_910b_prints_no_phy_id():
    first, second, third = ascend.parse_info(read("info_910b3_24.1.rc1.b030.txt"))
    assert first == NpuReading(
        npu=0,
        chip=0,
        phy_id=None,
        name="910B3",
        health="OK",
        power_w=101.8,
        temp_c=43.0,
        aicore_ratio=0.0,
        hbm_used_bytes=3318 * MIB,
        hbm_total_bytes=65536 * MIB,
    )
    assert (second.npu, second.power_w, third.npu, third.temp_c) == (1, 92.0, 2, 40.0)


def test_the_two_chips_of_an_a3_card_are_two_devices_and_a_dash_is_unknown():
    first, second = ascend.parse_info(read("info_a3_25.2.0.txt"))
    assert (first.npu, first.chip, first.phy_id) == (0, 0, 0)
    assert (second.npu, second.chip, second.phy_id) == (0, 1, 1)
    assert (first.power_w, second.power_w) == (211.3, None)
    assert (first.aicore_ratio, second.aicore_ratio) == (0.07, 0.07)
    assert (first.hbm_used_bytes, second.hbm_used_bytes) == (61609 * MIB, 61625 * MIB)
    assert first.utilization_column == "AICore(%)"


def test_a_950_has_other_columns_and_says_what_its_utilization_is():
    alarmed, idle = ascend.parse_info(read("info_950pr_25.7.rc1.txt"))
    assert (alarmed.npu, alarmed.name, alarmed.health) == (0, "Ascend950PR", "Alarm")
    assert (alarmed.chip, alarmed.phy_id) == (None, None)
    assert (alarmed.power_w, alarmed.temp_c, alarmed.aicore_ratio) == (205.7, 71.0, 1.0)
    assert alarmed.utilization_column == "NPU Util(%)"
    assert alarmed.hbm_total_bytes == 114688 * MIB
    assert (idle.aicore_ratio, idle.hbm_used_bytes) == (0.0, 6056 * MIB)


def test_version_26_is_wider_and_its_process_table_is_no_device():
    (only,) = ascend.parse_info(read("info_910b4_26.0.rc1.txt"))
    assert (only.npu, only.name, only.power_w) == (0, "910B4", 82.6)
    assert (only.hbm_used_bytes, only.hbm_total_bytes) == (2871 * MIB, 32768 * MIB)


def test_columns_are_taken_from_the_header_in_whatever_order():
    text = (
        "+--+\n| NPU Name | Health | Temp(C) Power(W) |\n| Chip Phy-ID | Bus-Id "
        "| HBM-Usage(MB) AICore(%) |\n+==+\n| 3 910C | OK | 50 210.0 |\n"
        "| 1 7 | 0000:9F:00.0 | 10 / 20 4 |\n+==+\n"
    )
    (only,) = ascend.parse_info(text)
    assert (only.npu, only.chip, only.phy_id) == (3, 1, 7)
    assert (only.power_w, only.temp_c) == (210.0, 50.0)
    assert (only.hbm_used_bytes, only.aicore_ratio) == (10 * MIB, 0.04)


def test_a_cell_with_too_few_words_gives_no_number_rather_than_a_wrong_one():
    text = read("info_910b3_24.1.rc1.b030.txt").replace("101.8       43 ", "            43 ")
    first, *_ = ascend.parse_info(text)
    assert (first.power_w, first.temp_c) == (None, None)
    assert first.hbm_used_bytes == 3318 * MIB


@pytest.mark.parametrize(
    "text", ["", "dcmi module initialize failed. ret is -8005", "+---+\n| a | b |\n+---+\n"]
)
def test_what_is_no_table_has_no_devices(text):
    assert ascend.parse_info(text) == []


def test_usages_with_the_chip_id_last():
    assert ascend.parse_usages(read("usages_910b.txt")) == [
        NpuUsage(
            npu=0,
            chip=0,
            hbm_total_bytes=65536 * MIB,
            hbm_used_ratio=0.03,
            aicore_ratio=0.0,
            aivector_ratio=0.0,
            aicpu_ratio=0.0,
            ctrlcpu_ratio=0.02,
            hbm_bandwidth_ratio=0.0,
        )
    ]


def test_usages_of_two_chips_with_the_chip_id_first():
    text = (
        "NPU ID : 4\nChip Count : 2\n\nChip ID : 0\nAicore Usage Rate(%) : 95\n"
        "HBM Usage Rate(%) : 80\n\nChip ID : 1\nAicore Usage Rate(%) : NA\n"
    )
    assert ascend.parse_usages(text) == [
        NpuUsage(npu=4, chip=0, aicore_ratio=0.95, hbm_used_ratio=0.8),
        NpuUsage(npu=4, chip=1, aicore_ratio=None),
    ]


def test_watch_lines_with_and_without_chip():
    text = (
        "NpuID(Idx) ChipId(Idx) Pwr(W)      Temp(C)     AI Core(%)  AI Cpu(%)   Memory(%)\n"
        "0           0           161.7       43          17          0           95\n"
        "NpuID(Idx)  Pwr(W)      Temp(C)     AI Core(%)  AI Cpu(%)   NPU Util(%)    AI Cube(%)\n"
        "1           -           51          -           0           16             3\n"
    )
    first, second = ascend.parse_watch(text)
    assert first == NpuReading(npu=0, chip=0, power_w=161.7, temp_c=43.0, aicore_ratio=0.17)
    assert second == NpuReading(npu=1, temp_c=51.0)


def test_the_logical_id_names_the_device_and_the_controller_is_none():
    mapping = parse_mapping(read("mapping_a3.txt"))
    assert mapping == {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}
    rows = [NpuReading(npu=1, chip=1), NpuReading(npu=1, chip=0)]
    assert device_ids(rows, mapping) == ["3", "2"]
    assert device_ids(rows, {}) == ["0", "1"]


def test_a_950_is_mapped_without_chip_and_by_its_physical_id():
    text = (
        "NPU ID    Slot ID    Chip ID    Chip Phy-ID    Chip Name\n"
        "0         3          0          5              Ascend950PR\n"
    )
    assert device_ids([NpuReading(npu=0)], parse_mapping(text)) == ["5"]


def test_the_tool_on_path_is_sampled(tmp_path, monkeypatch):
    npu_smi(tmp_path / "bin", info=FILES / "info_a3_25.2.0.txt", mapping=FILES / "mapping_a3.txt")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    recording = Recording(tmp_path / "trace")
    open_npu_smi("n0").sample(recording.board())
    assert recording.counters("n0/0") == {
        "device_utilization": [0.07],
        "device_memory_used_bytes": [61609 * MIB],
        "device_memory_total_bytes": [65536 * MIB],
        "device_power_w": [211.3],
        "device_temperature_c": [43.0],
    }
    assert "device_power_w" not in recording.counters("n0/1")  # the tool prints a dash
    assert recording.notes["sampled_devices.n0"]["n0/1"]["phy_id"] == 1


def test_a_tool_that_fails_and_returns_leaves_a_gap_not_zeros(tmp_path, monkeypatch):
    table = tmp_path / "table.txt"
    npu_smi(tmp_path / "bin", info=table)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    recording = Recording(tmp_path / "trace")
    source, board = open_npu_smi("n0"), recording.board("npu")
    good = read("info_910b3_24.1.rc1.b030.txt")
    for printed in (good, "dcmi module initialize failed. ret is -8005", "", good):
        table.write_text(printed)
        source.sample(board)
    assert recording.counters("n0/0")["device_power_w"] == [101.8, 101.8]
    (begin, end) = recording.markers()
    assert begin[:2] == ("gap", "n0")
    assert "ret is -8005" in begin[2]
    assert end[:2] == ("gap_end", "n0")


def test_a_chip_that_drops_out_of_the_table_is_a_gap_of_that_chip(tmp_path, monkeypatch):
    table = tmp_path / "table.txt"
    npu_smi(tmp_path / "bin", info=table)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    recording = Recording(tmp_path / "trace")
    source, board = open_npu_smi("n0"), recording.board("npu")
    whole = read("info_910b3_24.1.rc1.b030.txt")
    table.write_text(whole)
    source.sample(board)
    table.write_text(whole.replace("| OK  ", "| Alarm", 1)[: whole.index("| 2     910B3")])
    source.sample(board)
    assert recording.markers() == [
        ("health", "n0/0", "Alarm"),
        ("gap", "n0/2", "the chip is not in the table any more"),
    ]


def test_without_a_mapping_a_chip_that_drops_out_leaves_its_place_to_nobody(tmp_path, monkeypatch):
    """The tool prints no mapping; chip 0 is gone from the second table."""
    table = tmp_path / "table.txt"
    npu_smi(tmp_path / "bin", info=table)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    recording = Recording(tmp_path / "trace")
    whole = read("info_910b3_24.1.rc1.b030.txt")
    table.write_text(whole)
    source, board = open_npu_smi("n0"), recording.board("npu")
    source._mapping = {}
    source.sample(board)
    before = {lane: recording.counters(lane) for lane in ("n0/0", "n0/1", "n0/2")}
    table.write_text(without_npu(whole, 0))
    source.sample(board)
    assert ("gap", "n0/0", "the chip is not in the table any more") in recording.markers()
    for lane, times in (("n0/0", 1), ("n0/1", 2), ("n0/2", 2)):
        assert recording.counters(lane) == {name: v * times for name, v in before[lane].items()}


def without_npu(table: str, npu: int) -> str:
    """Return a table without the two rows of a card, and the rule behind them."""
    lines = table.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith(f"| {npu} "))
    return "".join(lines[:first] + lines[first + 3 :])


def test_a_host_without_the_tool_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceMissing, match="no `npu-smi` on PATH"):
        open_npu_smi("n0")


def test_the_library_of_a_two_chip_card_names_what_it_lacks(tmp_path):
    library = compiled(
        FILES / "dcmi_stub.c", tmp_path / "libdcmi.so", GENERATION=1, CHIPS_PER_CARD=2
    )
    recording = Recording(tmp_path / "trace")
    source, board = Dcmi("n0", ctypes.CDLL(str(library))), recording.board("npu")
    source.sample(board)
    source.sample(board)
    assert recording.counters("n0/1") == {
        "device_utilization": [0.37, 0.37],
        "device_temperature_c": [43.0, 43.0],
        "device_memory_used_bytes": [3319 * MIB] * 2,
        "device_memory_total_bytes": [65536 * MIB] * 2,
        "device_memory_bandwidth_utilization": [0.25, 0.25],
    }
    assert recording.counters("n0/0")["device_power_w"] == [211.3, 211.3]
    refused = recording.notes["unsupported_queries.npu.n0"]
    assert refused.keys() == {"n0/1", "n0/3"}
    assert "-8255" in refused["n0/1"]["power"]
    assert sorted(recording.markers()) == [
        ("gap", "n0/2", "`dcmi_get_device_temperature` returned -8005"),
        ("gap", "n0/3", "`dcmi_get_device_temperature` returned -8005"),
        ("health", "n0/2", "Alarm"),
        ("health", "n0/3", "Alarm"),
    ]


class Library:
    """A library that lists two cards of one chip each, and knows only the second."""

    def __init__(self, broken: tuple[int, ...]) -> None:
        self._broken = broken

    def dcmi_init(self) -> int:
        return 0

    def dcmi_get_card_list(self, count, cards, _most) -> int:
        count._obj.value, cards[0], cards[1] = 2, 0, 1
        return 0

    def dcmi_get_device_id_in_card(self, card, number, _controller, _cpu) -> int:
        number._obj.value = 1
        return -8005 if card in self._broken else 0

    def dcmi_get_device_logic_id(self, logical, card, _place) -> int:
        logical._obj.value = card
        return 0


def test_a_card_that_cannot_be_asked_does_not_take_the_others_with_it(tmp_path):
    """In a container that was given one of two cards, the library lists both."""
    recording = Recording(tmp_path / "trace")
    Dcmi("n0", Library(broken=(0,))).sample(recording.board("npu"))
    assert recording.notes["sampled_devices.n0"].keys() == {"n0/1"}
    lost = ("gap", "n0", "`dcmi_get_device_id_in_card` returned -8005")
    assert recording.markers() == [lost]


def test_a_library_that_names_no_chip_leaves_it_to_the_tool(tmp_path, monkeypatch):
    npu_smi(tmp_path / "bin", info=read("info_910b3_24.1.rc1.b030.txt"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    for library in (Library(broken=(0, 1)), object()):
        monkeypatch.setattr(dcmi, "_PATHS", ("libdcmi.so",))
        monkeypatch.setattr(dcmi.ctypes, "CDLL", lambda _, library=library: library)
        assert isinstance(npu.open_npus("n0"), NpuSmi)


def test_the_library_of_a_950_is_called_by_logical_id(tmp_path):
    library = compiled(FILES / "dcmi_stub.c", tmp_path / "libdcmi.so", GENERATION=2)
    recording = Recording(tmp_path / "trace")
    Dcmi("n0", ctypes.CDLL(str(library))).sample(recording.board("npu"))
    assert recording.counters("n0/3")["device_power_w"] == [205.7]
    assert recording.counters("n0/3")["device_utilization"] == [0.99]
    assert recording.notes["sampled_devices.n0"]["n0/3"]["source"] == "dcmi v2"


def test_the_allocator_is_asked_only_where_torch_npu_is_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    assert torch_npu_memory() is None
    torch = types.ModuleType("torch")
    torch.npu = types.SimpleNamespace(
        is_initialized=lambda: True,
        mem_get_info=lambda: (60, 64),
        memory_allocated=lambda: 1,
        max_memory_allocated=lambda: 2,
        memory_reserved=lambda: 3,
        max_memory_reserved=lambda: 4,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    assert torch_npu_memory() == {
        "allocated_bytes": 1,
        "allocated_peak_bytes": 2,
        "reserved_bytes": 3,
        "reserved_peak_bytes": 4,
        "device_free_bytes": 60,
        "device_total_bytes": 64,
    }

"""What the devices and the host did: one sampler process per node, beside the training.

Host clocks say what was asked of a device; these counters say what it did.
"""

from rlinsight.collectors.devices.launch import start, stop

__all__ = ["start", "stop"]

"""Emulated devices: verl's and Ray's real control plane, generation and training that take time.

What stands in for a device does nothing but wait as long as a stated cost model says
(`cost.py`), on a time scale, so that a cluster's run takes minutes on two cores.
"""

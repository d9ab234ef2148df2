"""Preflight checks: small functions from the facts of a run to a problem, or None.

Each module lists its checks in `CHECKS`; `rlinsight.runs.preflight` runs them all.
"""

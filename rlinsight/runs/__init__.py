"""Managed runs: configuration, preflight, launch, live progress, and what follows a run."""

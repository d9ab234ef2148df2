"""Runs verl 0.9.1 with FSDP, Ray and vLLM on machines without an accelerator.

Importing this package is light. `launch` says how to start such a run; `plugin` is what verl
loads in each of its processes; `example` generates a model and a task for a first run.
"""

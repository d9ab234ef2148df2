"""Metrics that real verl 0.9.1 runs logged on CPUs, as a metrics frame."""

from __future__ import annotations

import json
import numbers
from pathlib import Path

import polars as pl
from timelines import S

FOLDER = Path(__file__).parent / "data/verl_metrics"
SCHEMA = {"ts_ns": pl.Int64, "step": pl.Int32, "key": pl.String, "value": pl.Float64}


def recorded(name: str) -> pl.DataFrame:
    """Return the metrics of a recorded run; its rows are a minute apart, from one minute on."""
    lines = (FOLDER / f"{name}.metrics.jsonl").read_text().splitlines()
    rows = [
        (60 * (number + 1) * S, row["step"], key, float(value))
        for number, row in enumerate(map(json.loads, lines))
        for key, value in row["data"].items()
        if isinstance(value, numbers.Real)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def metrics(*rows: tuple[float, int, str, float]) -> pl.DataFrame:
    """Rows of (time in s, step, key, value)."""
    coded = [(round(at * S), step, key, float(value)) for at, step, key, value in rows]
    return pl.DataFrame(coded, schema=SCHEMA, orient="row")


def over_steps(**keys: list[float]) -> pl.DataFrame:
    """One row a step from 1 on, a second apart; `__` in a keyword stands for `/`."""
    return metrics(
        *(
            (step, step, key.replace("__", "/"), value)
            for key, values in keys.items()
            for step, value in enumerate(values, 1)
        )
    )

"""A mapping of a run's YAML."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping of the file; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

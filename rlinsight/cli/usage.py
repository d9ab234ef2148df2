"""What was wrong with a command line, as one sentence instead of a box."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import typer

from rlinsight.cli.shell import quoted
from rlinsight.errors import did_you_mean, unknown

#: What typer raises for a wrong command line; the class has no public name of its own.
UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]

#: What the checks of values say, in older and newer versions, and what they expect.
_EXPECTED: Final = (
    (r"greater than or equal to (\S+)", "of at least {}"),
    (r"greater than (\S+)", "above {}"),
    (r"less than or equal to (\S+)", "of at most {}"),
    (r"in the range (\S+?)\.?$", "in {}"),
    (r"valid integer", "to be a whole number"),
    (r"valid number|valid float", "to be a number"),
    (r"not one of (.+?)\.?$", "to be one of {}"),
)
#: Commands that take one trace.
_OF_ONE_TRACE: Final = ("analyze", "whatif", "advise", "validate", "check")


def is_empty(error: Any) -> bool:
    """Whether nothing was typed after a group of commands: the help is what that asks for."""
    return type(error).__name__ == "NoArgsIsHelpError"


def sentence(error: Any, typed: Sequence[str]) -> str:
    """Return what was expected and what was found; `typed` are the words of the command line."""
    said = str(error.format_message())
    if (option := getattr(error, "option_name", None)) is not None:
        return _option(error, option, said)
    if (param := getattr(error, "param", None)) is not None:
        return _value(error, param, said, typed)
    if (command := re.match(r"No such command '(.*?)'", said)) is not None:
        return unknown("a command", command[1], getattr(error.ctx.command, "commands", ()))
    if "unexpected extra argument" in said:
        return _too_many(error, said, typed)
    return f"{said}{_help(error)}"


def _option(error: Any, option: str, said: str) -> str:
    if "requires an argument" in said or "requires a" in said:
        return f"expected a value after `{option}`, found none{_help(error)}"
    if "No such option" in said:
        names = [name for one in error.ctx.command.params for name in one.opts]
        return f"there is no option `{option}`{did_you_mean(option, names) or _help(error)}"
    return f"{said}{_help(error)}"


def _value(error: Any, param: Any, said: str, typed: Sequence[str]) -> str:
    is_option = param.param_type_name == "option"
    name = f"`{param.opts[0]}`" if is_option else f"`{str(param.name).upper()}`"
    if "Missing" in said:
        return f"expected {name} after `{error.ctx.command_path}`, found none{_help(error)}"
    found = _found(param, typed) if is_option else None
    given = "" if found is None else f", found `{found}`"
    for pattern, form in _EXPECTED:
        if (fits := re.search(pattern, said, re.DOTALL)) is not None:
            wanted = " ".join(part.replace("'", "`") for part in fits.groups())
            return f"expected {name} {form.format(wanted)}{given}{_near(found, wanted)}"
    return f"{name}: {said.split(': ', 1)[-1]}{given}"


def _near(found: str | None, wanted: str) -> str:
    return did_you_mean(found or "", re.findall("`([^`]+)`", wanted))


def _found(param: Any, typed: Sequence[str]) -> str | None:
    """Return the text that was given for an option, the last one that there is."""
    for place, word in reversed(list(enumerate(typed))):
        name, equals, value = word.partition("=")
        if name in param.opts and equals:
            return value
        if word in param.opts and place + 1 < len(typed):
            return typed[place + 1]
    return None


def _too_many(error: Any, said: str, typed: Sequence[str]) -> str:
    found = re.sub(r".*\((.*)\)\.?$", r"\1", said, flags=re.DOTALL)
    name = error.ctx.info_name
    if name not in _OF_ONE_TRACE:
        return f"`{error.ctx.command_path}` does not take `{found}` as well{_help(error)}"
    first = next((v for v in error.ctx.params.values() if isinstance(v, str)), "TRACE")
    rest = next((typed[n:] for n in range(len(typed)) if " ".join(typed[n:]) == found), ())
    given = " ".join(["rlinsight compare", *map(quoted, (first, *rest) if rest else ())])
    return (
        f"expected one trace for `rlinsight {name}`, found also `{found}`; `{given}` puts "
        "runs side by side"
    )


def _help(error: Any) -> str:
    context = error.ctx
    return "" if context is None else f"; `{context.command_path} -h` says what it takes"

"""What Ray says in a program's output about actors that died on their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

#: Ray repeats the error at each level that raises it; the last part of the output has it.
_READ_BYTES: Final = 1 << 20
_DIED: Final = re.compile(
    r"actor died unexpectedly.{0,80}?class_name: (?P<name>\S+).{0,200}?\bpid: (?P<pid>\d+)"
    r".{0,400}?exit type: SYSTEM_ERROR",
    re.DOTALL,
)


class DeadActor(NamedTuple):
    """An actor whose process ended unexpectedly, as Ray names it."""

    name: str
    pid: int


def dead_actors(console: Path) -> list[DeadActor]:
    """Return the actors that Ray says died by a crash or a signal, first mentioned first.

    Actors that Ray itself ended, as at the end of a run, are not among them.
    """
    try:
        with console.open("rb") as file:
            file.seek(max(0, console.stat().st_size - _READ_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    found = (DeadActor(m["name"], int(m["pid"])) for m in _DIED.finditer(text))
    return list(dict.fromkeys(found))

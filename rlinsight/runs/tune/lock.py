"""One loop for one folder: a second would start its runs on the same devices, and lose the log."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rlinsight.errors import ConfigError

LOCK_FILE: Final = "tuning.lock"


@contextmanager
def alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the folder of a tuning, as long as this process lives and the block goes on.

    The system lets go of the lock when its process ends, be it by `kill -9`; the file stays and
    means nothing. Raises ConfigError naming the process that holds it.
    """
    path = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"cannot write `{path}`: {error.strerror or error}") from error
    try:
        _lock(file, folder, say)
        yield
    finally:
        os.close(file)


def _lock(file: int, folder: Path, say: Callable[[str], None]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"expected no other loop in `{folder}`, found `rlinsight tune` as {_holder(file)}; "
            "wait for its end, stop it, or give another folder with `--to`"
        ) from None
    except OSError as error:  # some shared file systems have no locks
        say(f"`{folder}` cannot be locked ({error.strerror}): see that no other loop works in it")
        return
    with suppress(OSError):  # on a full disk the lock holds as well
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)


def _holder(file: int) -> str:
    said = os.pread(file, 200, 0).decode(errors="replace").strip()
    return said or "another process"

"""The secret that the processes of one run share."""

from __future__ import annotations

import os

from rlinsight.errors import ConfigError

#: Environment variable that carries the secret into every process of a run.
SECRET_VARIABLE = "RLINSIGHT_SECRET"  # noqa: S105 - a name, not a secret
MIN_SECRET_CHARS = 16


def run_secret() -> bytes:
    """Return this run's secret; raises ConfigError when it is missing or too short."""
    secret = os.environ.get(SECRET_VARIABLE, "")
    if len(secret) < MIN_SECRET_CHARS:
        raise ConfigError(
            f"expected a secret of at least {MIN_SECRET_CHARS} characters in `{SECRET_VARIABLE}`, "
            f"found {len(secret)}; start the run with `rlinsight run`, or, on a Ray cluster that "
            "already runs, pass the variable in the job's runtime environment"
        )
    return secret.encode()

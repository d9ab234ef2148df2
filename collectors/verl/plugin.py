"""Entry point `verl.plugins`: importing this module installs the hooks.

verl loads it in every process that imports verl: the driver, Ray workers, the rollout
servers and the engines' own worker processes. Without RLINSIGHT_TRACE it does nothing.
"""

from __future__ import annotations

import os


def _activate() -> None:
    if not os.environ.get("RLINSIGHT_TRACE"):
        return
    try:
        from rlinsight.collectors.verl.install import install_all

        install_all()
    except Exception as error:  # nothing of ours may stop a training process
        import logging

        logging.getLogger(__name__).warning("rlinsight: nothing is recorded here: %r", error)


_activate()

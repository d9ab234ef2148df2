"""A run as a job of a Ray cluster that is there already."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from rlinsight.errors import MissingExtraError, RlinsightError
from rlinsight.runs.plan import CONSOLE_FILE, Plan
from rlinsight.runs.processes import Process

_RETRY_S: Final = 2.0
_ASK_EVERY_S: Final = 1.0
#: How long a cluster may take to bring up the agent that starts jobs.
_AGENT_WAIT_S: Final = 60.0


class RayJob:
    """A submitted job; its environment reaches every worker through the job's runtime_env."""

    def __init__(self, plan: Plan, address: str) -> None:
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError:
            raise MissingExtraError("submitting a Ray job", "ray") from None
        self._job_id = plan.run_id
        self.console = plan.trace / CONSOLE_FILE
        self.console.touch()
        try:
            self._client: Any = JobSubmissionClient(address)
            self._submit(plan)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RlinsightError(
                f"cannot submit the run to `ray_address: {address}`: {error}"
            ) from error
        self._exit_code: int | None = None
        self._ask_again = 0.0
        self._follower = threading.Thread(target=self._follow, name="job-log", daemon=True)
        self._follower.start()

    def _submit(self, plan: Plan) -> None:
        """Submit the job; a cluster that has just started has no agent for it yet."""
        give_up = time.monotonic() + _AGENT_WAIT_S
        while True:
            try:
                self._client.submit_job(
                    entrypoint=plan.shell_line(),
                    submission_id=self._job_id,
                    runtime_env={"env_vars": dict(plan.environment)},
                )
            except RuntimeError as error:
                if "No available agent" not in str(error) or time.monotonic() > give_up:
                    raise
                time.sleep(_RETRY_S)
            else:
                return

    def poll(self) -> int | None:
        """Return the exit code, None while the job runs or cannot be asked."""
        if self._exit_code is not None or time.monotonic() < self._ask_again:
            return self._exit_code
        self._ask_again = time.monotonic() + _ASK_EVERY_S
        try:
            info = self._client.get_job_info(self._job_id)
        except (RuntimeError, ConnectionError, OSError):
            return None
        if not info.status.is_terminal():
            return None
        self._follower.join(timeout=10)
        failed = 0 if info.status.value == "SUCCEEDED" else 1
        code = info.driver_exit_code
        self._exit_code = failed if code is None or (failed and code == 0) else int(code)
        return self._exit_code

    def interrupt(self) -> None:
        """Ask Ray to stop the job; Ray uses force after a few seconds."""
        try:
            self._client.stop_job(self._job_id)
        except (RuntimeError, ConnectionError, OSError):
            pass

    def stop(self, *, grace_s: float, in_a_hurry: Callable[[], bool]) -> None:
        """Stop the job and wait up to `grace_s` seconds for its end; the cluster stays."""
        if self.poll() is not None:
            return
        self.interrupt()
        deadline = time.monotonic() + grace_s
        while self.poll() is None and time.monotonic() < deadline and not in_a_hurry():
            time.sleep(0.2)

    def rest(self) -> set[Process]:
        """Return nothing: the cluster's processes are not ours."""
        return set()

    def _follow(self) -> None:
        with self.console.open("a", encoding="utf-8") as output:
            asyncio.run(self._copy_log(output))

    async def _copy_log(self, output: Any) -> None:
        copied = 0
        while True:
            skip = copied
            try:
                async for text in self._client.tail_job_logs(self._job_id):
                    # A connection that was lost starts again from the beginning.
                    new, skip = text[skip:], max(0, skip - len(text))
                    output.write(new)
                    output.flush()
                    copied += len(new)
            except (RuntimeError, OSError):
                await asyncio.sleep(_RETRY_S)
            else:
                return

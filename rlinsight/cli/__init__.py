"""The command line: one module per subcommand, its help taken from its docstring.

Exit codes: 0 ok, 1 a finding or a failed run, 2 usage or unusable input.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Final

import typer

from rlinsight import __version__
from rlinsight.errors import RlinsightError

#: Subcommands in the order of `rlinsight --help`: module and function have the same name.
COMMANDS: Final = (
    "run",
    "analyze",
    "serve",
    "check",
    "baseline",
    "advise",
    "whatif",
    "compare",
    "tune",
    "validate",
    "doctor",
)

app = typer.Typer(
    name="rlinsight",
    help="Records an RL run, accounts for every device-second, and says what to change.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlinsight {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=lambda v: _show_version(wanted=v)
        ),
    ] = False,
) -> None: ...


for _name in COMMANDS:
    _module = importlib.import_module(f"rlinsight.cli.{_name}")
    _command = getattr(_module, _name)
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


def main() -> None:
    """Run the command line; a deliberate error is one sentence and its exit code."""
    try:
        app()
    except RlinsightError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone; without this, Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)

"""The command line: one module per subcommand, its help taken from its docstring.

Exit codes: 0 ok, 1 a finding or a failed run, 2 usage or unusable input.
"""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any, Final, NoReturn

import typer

from rlinsight import __version__
from rlinsight.cli import output, usage
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
    output.prepare()
    try:
        try:
            code = app(standalone_mode=False)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except usage.UsageError as error:
        _refuse(error)
    except typer.Abort:
        sys.exit(130)
    except RlinsightError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        # Commands name the files that they cannot write; what is left is the output itself.
        if sys.stdout is not None:
            output.discard(sys.stdout.fileno())
        _fail(f"cannot go on: {error.strerror or error}{_place(error)}", 2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


def _refuse(error: Any) -> NoReturn:
    if usage.is_empty(error):
        # Newer versions of typer have printed it by then.
        if error.format_message():
            typer.echo(error.format_message())
        sys.exit(2)
    _fail(usage.sentence(error, sys.argv[1:]), 2)


def _place(error: OSError) -> str:
    where = "standard output" if error.filename is None else f"`{error.filename}`"
    return f", in {where}"


def _fail(message: str, code: int) -> NoReturn:
    from rlinsight.report.plain import plain

    typer.echo(f"error: {plain(message)}", err=True)
    sys.exit(code)

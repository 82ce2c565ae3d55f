"""The `agop` command."""

import io
import os
import signal
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from agop.cli.bench import app as bench
from agop.cli.evaluate import data, evaluate, list_, report, sanity
from agop.cli.explain import app, audit, explain
from agop.cli.printing import print_labelled, sigterm_as_interrupt, stoppable
from agop.cli.prior import fit, merge, show
from agop.cli.suspect import suspect
from agop.errors import AGOPError
from agop.io import package_version

cli = typer.Typer(
    help="Explain image classifiers with the Average Gradient Outer Product.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing Rich would double the time of `agop --help`
)
_NOTHING = stoppable("nothing was written to {out}")
_OVERLAYS = stoppable("finished overlays stay in {out}/, without index.html and maps.safetensors")
cli.command("fit", short_help="Compute the AGOP of a trained model.")(_NOTHING(fit))
cli.command("merge", short_help="Join AGOP files of one model.")(merge)
cli.command("show", short_help="Show what an AGOP file holds.")(show)
cli.command("explain", short_help="Explain images: write overlays and maps.")(_OVERLAYS(explain))
cli.command("evaluate", short_help="Score methods on images with masks, or on grids.")(
    stoppable("finished methods stay in {out}: run the same command to resume")(evaluate)
)
cli.command("sanity", short_help="Compare maps with those of random weights.")(sanity)
cli.command("audit", short_help="Find shortcuts, tested by interventions.")(_NOTHING(audit))
cli.command("suspect", short_help="Test which classes a mark raises.")(_NOTHING(suspect))
cli.command("app", short_help="Serve a web page that explains dropped images.")(app)
cli.command("list", short_help="List methods, metrics, benchmarks and models.")(list_)
cli.command("report", short_help="Write the report of a run.")(report)
cli.add_typer(bench, name="bench")
cli.add_typer(data, name="data")


def main() -> None:
    """Run the command line. An error of agop's own is one line, not a traceback."""

    def fail(message: str, code: int) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another rank's end must not cut this message off
        print_labelled("error", message, "red")
        sys.exit(code)

    shown = set()

    def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:  # Python forgets what it has shown whenever a library changes the filters
            shown.add(str(message))
            print_labelled("warning", str(message), "yellow")

    warnings.showwarning = show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):  # file names that aren't UTF-8 are printed as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    with sigterm_as_interrupt():
        try:
            cli()
        except AGOPError as error:
            fail(str(error), 2)
        except Exception as error:
            if os.environ.get("AGOP_TRACEBACK"):
                raise
            fail(f"{type(error).__name__}: {error} (set AGOP_TRACEBACK=1 for the traceback)", 1)


@cli.callback(invoke_without_command=True)
def version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Explain image classifiers with the Average Gradient Outer Product."""
    if version:
        typer.echo(f"agop {package_version()}")
        raise typer.Exit

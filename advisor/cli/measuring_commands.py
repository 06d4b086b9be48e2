"""``advisor profile``, ``campaign`` and ``calibrate``: each also runs without this command line.

Their words are handed on as they are, to the same programs that ``python -m`` starts.
"""

import typer

AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def profile(context: typer.Context) -> None:
    """Measure workloads alone; --help says more."""
    from advisor.profiling import main

    raise typer.Exit(main(context.args))


def campaign(context: typer.Context) -> None:
    """Measure a plan of many mixes on one or more GPUs; --help says more."""
    from advisor.campaign import main

    raise typer.Exit(main(context.args))


def calibrate(context: typer.Context) -> None:
    """Measure this machine, so that advice is for it; --help says more."""
    from advisor.calibration import main

    raise typer.Exit(main(context.args))

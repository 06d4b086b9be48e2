"""``advisor reproduce``."""

from advisor.cli.options import AsJson, Models, Profiles
from advisor.cli.output import show_found


def reproduce(profiles: Profiles = None, models: Models = None, as_json: AsJson = False) -> None:
    """Set what published studies found on an A100-40GB beside what is predicted for one.

    The rows, and what would agree, were written down beforehand.
    """
    from advisor.api import Advisor
    from advisor.validate.reproduce import reproduced
    from advisor.validate.reproduction_text import reproduction_document, reproduction_table
    from advisor.validate.study_questions import GPU
    from advisor.workload.store import NO_CALIBRATION

    advisor = Advisor(GPU, profiles=profiles, models=models, calibration=NO_CALIBRATION)
    show_found(reproduced(advisor), as_json, reproduction_table, reproduction_document)

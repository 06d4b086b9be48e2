"""``python -m advisor.measure VERB ...``: measures where only torch is installed.

VERB is profile, campaign, calibrate, doctor or runs. A supervisor ends every process of a verb.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from advisor.measure.inside.hook import VARIABLE
from advisor.measure.inside.server import serve
from advisor.measure.process import run_inner, supervise

_VERBS = {
    "profile": "advisor.measure.profile_command:run_profile",
    "campaign": "advisor.measure.campaign:run_campaign",
    "calibrate": "advisor.measure.calibrate:run_calibrate",
    "runs": "advisor.measure.shared_run:run_list",
}


def main(argv: Sequence[str]) -> int:
    """Run the verb that `argv` begins with; return the exit code."""
    verb, words = (argv[0], argv[1:]) if argv else ("", [])
    if verb == "inner":  # the process under the supervisor
        return run_inner(words[0], words[1:])
    if verb == "serve":  # a program of ours that a measurement needs
        module, _, name = words[0].partition(":")
        address = json.loads(os.environ[VARIABLE])["address"]
        serve(address, getattr(import_module(module), name))
        return 0
    if verb == "doctor":
        from advisor.measure.doctor import run_doctor

        return run_doctor(words)
    if verb not in _VERBS:
        verbs = ", ".join((*_VERBS, "doctor"))
        print(f"usage: python -m advisor.measure VERB ..., VERB one of {verbs}", file=sys.stderr)
        return 2
    own = words[: words.index("--")] if "--" in words else words  # a script's words follow
    if verb == "profile" and "--from-numbers" in own:
        return supervise("advisor.measure.profile_command:run_from_numbers", words)
    return supervise(_VERBS[verb], words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

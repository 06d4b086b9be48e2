"""``advisor restore``: undoes what runs of this program left that were killed."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from advisor.cli.output import show_text, warn

if TYPE_CHECKING:
    from advisor.apply.restore import Restored


def restore() -> None:
    """Undo what killed runs left on this machine: jobs, MPS daemons and MIG instances."""
    from advisor.apply.restore import restore as restored

    if not show_restored(restored()):
        show_text("Nothing is left to undo.")


def show_restored(found: "Iterable[Restored]") -> int:
    """Say of each what came of it; how many there were.

    Raises:
        AdvisorError: Not all of it is undone.
    """
    failed, count = None, 0
    for count, each in enumerate(found, start=1):  # noqa: B007 - the last is what is returned
        if each.why_not is None:
            show_text(each.said)
        else:
            warn([f"{each.said}: {each.why_not}"])
            failed = failed or each.why_not
    if failed:
        raise type(failed)("not all of it is undone, as said above. `advisor restore` again then.")
    return count

"""Provides a MIG device for each partition of a plan while it runs, for `advisor run --apply`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from advisor.apply.mig_layout import give_back, make
from advisor.apply.mig_request import MigPart
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.launch.journal import Journal, journal
from advisor.launch.launch_plan import NOT_RUN
from advisor.measure.execution.execution_plan import ExecutedPartition, ExecutedStage, ExecutionPlan
from advisor.sharing import Instance


class MigProvider:
    """A `DeviceProvider` of MIG instances, each stage's in place of those of the stage before.

    Args:
        plan: All of it on MIG, each instance with its start.
        gpu: That it was made for.
        uuid: Of the GPU.
        command: For messages.
        replacing: Take away idle instances that stand in the way, and make them again afterwards.
        say: Takes a line about something that happened.

    Raises:
        InvalidInput: A part of `plan` is on the whole GPU, for which MIG mode would be switched.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        gpu: Gpu,
        uuid: str,
        command: str,
        *,
        replacing: bool,
        say: Callable[[str], None],
    ) -> None:
        refuse_switching(plan)
        self._gpu, self._uuid, self._command = gpu, uuid, command
        self._replacing, self._say = replacing, say
        self._held = ExitStack()
        self._log: Journal | None = None

    def provide(self, stage: ExecutedStage) -> Mapping[int, str]:
        """As `DeviceProvider.provide`.

        Raises:
            NothingFits: The driver's instances are not those planned for.
            GpuUnavailable: As `advisor.apply.mig_layout.cut_up` has it.
        """
        self._say(NOT_RUN)
        parts = tuple(_parts(stage))
        return make(self._journal(), self._gpu, parts, replacing=self._replacing)

    def release(self, partition: ExecutedPartition) -> None:
        """It stays: the run holds the whole GPU until it is over."""

    def restore(self) -> None:
        """Have the instances as they were before the run, of which this may be the second watcher.

        Raises:
            AdvisorError: They cannot be, now; `advisor restore` does it then.
        """
        try:
            if done := give_back(self._journal()):
                self._say(done)
        finally:
            self._log = None
            self._held.close()

    def _journal(self) -> Journal:
        if self._log is None:
            self._log = self._held.enter_context(journal(self._uuid, self._command))
        return self._log


def refuse_switching(plan: ExecutionPlan) -> None:
    """Check that all of `plan` is on MIG.

    Raises:
        InvalidInput: A part of it is not, for which MIG mode would be switched.
    """
    if not all(part.instance for stage in plan.stages for part in stage.partitions):
        raise InvalidInput(
            f"{plan.sharing}: one group is on MIG and another is not, and MIG mode is never "
            f"switched here. Run each group as a plan of its own."
        )


def _parts(stage: ExecutedStage) -> Iterator[MigPart]:
    for part in stage.partitions:
        profile, at, start = str(part.instance).partition("@")
        yield MigPart(part.number, Instance(profile, int(start) if at else None), part.slices)

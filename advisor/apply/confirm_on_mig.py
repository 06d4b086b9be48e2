"""``advisor confirm --apply``: the studies' cases on MIG instances, made for each and taken away.

Not yet run on MIG hardware.
"""

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from advisor.apply.mig_layout import cut_up
from advisor.apply.mig_request import MigPart, refuse_mode
from advisor.errors import AdvisorError, InvalidInput, NothingFits
from advisor.hardware.catalogue import Gpu, gpu
from advisor.hardware.live_gpu import live_gpu
from advisor.launch.journal import Journal, journal
from advisor.measure.campaign.confirm_cases import NAME, InstanceCase, instance_cases
from advisor.measure.campaign.confirm_command import parsed, place_records, say_what_next
from advisor.measure.campaign.ledger import CampaignProgress, Ledger
from advisor.measure.campaign.steadiness import Steadiness
from advisor.measure.process.claimed_device import Device, device_at_hand, devices_in
from advisor.measure.process.cores import allowed_cores
from advisor.measure.process.mps_session import MpsSession, tenant_environments
from advisor.measure.process.provenance import command_line
from advisor.measure.process.supervisor import say
from advisor.measure.process.windows import Timing
from advisor.measure.process.worker import TenantSetup
from advisor.measure.shared.bench import Bench, bench_on
from advisor.measure.shared.planned_run import PlannedMix
from advisor.sharing import Concurrent, Naive, parse_sharing
from advisor.sharing.traversal import partitions
from advisor.workload.run import Run
from advisor.workload.spec import Workload
from advisor.workload.writing import writable_folder

# Seconds of a case and of each of its jobs: instances are made and taken away in tenths.
_CASE_S, _JOB_S = 6.0, 1.0


class InstanceSession(MpsSession):
    """Tenants without MPS that see one MIG device each.

    Args:
        device: The whole GPU.
        folder: As of `MpsSession`.
        uuids: Of each tenant's MIG device, in the tenants' order.
    """

    def __init__(self, device: Device, session: MpsSession, uuids: Sequence[str]) -> None:
        super().__init__(device, session.folder)
        self._uuids = tuple(uuids)

    def setups(
        self,
        sharing: Concurrent,
        cores: Sequence[tuple[int, ...]],
        workloads: Sequence[Workload] | None = None,
    ) -> tuple[TenantSetup, ...]:
        """See `MpsSession`."""
        seen = [tenant_environments(sharing, 1, self.folder, uuid)[0] for uuid in self._uuids]
        plain = super().setups(sharing, cores, workloads)
        return tuple(
            replace(setup, environment=its) for setup, its in zip(plain, seen, strict=True)
        )


def run(argv: Sequence[str]) -> int:
    """Measure the cases on the GPU in MIG mode that the words `argv` name; the exit code.

    Raises:
        InvalidInput: Words or files are invalid.
        NothingFits: The GPU has no MIG, or its driver offers other instances.
        GpuUnavailable: It cannot be used, MIG mode is off, or rights lack.
    """
    asked = parsed(argv)
    device = _gpu_in_mig_mode(asked.devices or "0")
    card = gpu(device.key)
    place_records(asked, card.key)
    writable_folder(asked.out)
    steadiness = Steadiness([asked.profiles])
    ledger = Ledger(asked.out, NAME, asked.profiles, steadiness, one_file=True)
    todo = [case for case in instance_cases(card.key) if case.id not in ledger.done]
    minutes = sum(_CASE_S + _JOB_S * len(case.workloads) for case in todo) / 60
    say(f"{len(todo)} cases on MIG instances to do: about {minutes:.0f} min")
    if asked.dry_run or not todo:
        return 0
    progress = CampaignProgress(len(todo), 1, asked.deadline, steadiness)
    with (
        bench_on(
            device, allowed_cores(asked.cores), Timing(), command_line("advisor.confirm", argv)
        ) as bench,
        journal(device.uuid or "", "advisor confirm") as log,
    ):
        _measure(todo, bench, log, (ledger, progress))
    say(progress.summary())
    say_what_next(asked, card.key)
    return AdvisorError.exit_code if progress.failed else 0


def _measure(
    todo: Sequence[InstanceCase], bench: Bench, log: Journal, books: tuple[Ledger, CampaignProgress]
) -> None:
    """Measure one case after the other, until all are done or the deadline is near."""
    (ledger, progress), device = books, bench.settings.session.device
    for case in todo:
        if progress.too_late():
            return
        began = monotonic()
        try:
            found = measured_on_instances(case, gpu(device.key), bench, log)
        except NothingFits as error:  # the next case asks for other instances
            progress.give_up(case.id, str(error))
            continue
        ledger.add(found, "mig")
        progress.report_done(found, device.name, monotonic() - began)


def measured_on_instances(case: InstanceCase, card: Gpu, bench: Bench, log: Journal) -> Run:
    """Run `case` for real on instances that are there for as long as it runs.

    Raises:
        AdvisorError: As `cut_up` and `Bench.measure` do; the instances are as before, or the
            message says that they are not.
    """
    sharing = parse_sharing(case.sharing)
    found = list(enumerate(partitions(sharing, len(case.workloads)), start=1))
    parts = [
        MigPart(number, part.instance, part.slices)
        for number, part in found
        if part.instance is not None
    ]
    seats = {job: number for number, part in found for job in part.jobs}
    mix = PlannedMix(
        id=case.id, sharing=Naive(), purpose="chosen", repeats=None, workloads=case.workloads
    )
    with cut_up(log, card, parts, replacing=True) as uuids:
        session = bench.settings.session
        own = InstanceSession(session.device, session, [uuids[seats[job]] for job in sorted(seats)])
        on_them = replace(bench, settings=replace(bench.settings, session=own))
        return replace(on_them.measure(mix), sharing=str(sharing))


def _gpu_in_mig_mode(devices: str) -> Device:
    asked = devices_in(devices)
    if len(asked) > 1:
        raise InvalidInput(f"--devices {devices}: with --apply, one GPU at a time")
    refuse_mode(live_gpu(asked[0]))
    return device_at_hand(asked[0], on_mig=True)

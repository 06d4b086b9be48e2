"""MIG instances brought to where they lie on one GPU, or refused."""

from dataclasses import replace

from advisor.gpu.catalogue import Gpu
from advisor.gpu.compute_instances import place_compute
from advisor.gpu.layouts import place
from advisor.sharing import Arrangement, Divided, Hybrid, Mig


def placed(sharing: Arrangement, gpu: Gpu) -> Arrangement:
    """`sharing` with a start for each MIG instance; as it is where it has none.

    Raises:
        NothingFits: `gpu` cannot hold these instances at once, or cannot cut them up so.
    """
    match sharing:
        case Mig(instances):
            return Mig(place(gpu, instances))
        case Hybrid(places):
            starts = place(gpu, sharing.instances)
            for each in places:
                if isinstance(each, Divided):
                    sizes = [part.slices for part in each.parts]
                    place_compute(gpu, each.instance.profile, sizes)
            return Hybrid(
                tuple(
                    replace(each, instance=instance)
                    for each, instance in zip(places, starts, strict=True)
                )
            )
        case _:
            return sharing

"""Image classifiers out of timm, randomly initialised; nothing is downloaded."""

from typing import Self

from torch import Tensor, nn

from advisor.errors import InvalidInput, UnknownName
from advisor.workload.spec import Workload
from advisor.zoo.torchvision_import import import_timm


def check_timm_model(model: str) -> None:
    """Refuse a model that timm does not have.

    Raises:
        UnknownName: timm has none of that name.
    """
    timm = import_timm()
    if not timm.is_model(model):
        raise UnknownName(
            "timm model", model, timm.list_models(), "`timm.list_models()` lists all."
        )


class KeptStatistics(nn.Module):
    """A network that is trained in `eval()` mode: batch norms keep the statistics they have."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.eval()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - whatever is asked, it stays so
        return self


def timm_network(workload: Workload) -> nn.Module:
    """The classifier, on torch's default device.

    Raises:
        UnknownName: timm has no such model.
        InvalidInput: timm cannot build it at this resolution.
    """
    check_timm_model(workload.model)
    timm = import_timm()
    # Models with learnt positions are built for one size; the others take any.
    fixed = timm.get_pretrained_cfg(workload.model)
    fixed_size = fixed is not None and fixed.fixed_input_size
    size = {"img_size": workload.resolution} if fixed_size else {}
    try:
        network: nn.Module = timm.create_model(
            workload.model, pretrained=False, num_classes=workload.classes, **size
        )
    except (TypeError, ValueError, AssertionError) as error:
        raise InvalidInput(
            f"{workload.name}: timm cannot build {workload.model} for {workload.resolution} px "
            f"({error}). Try another resolution."
        ) from None
    return network

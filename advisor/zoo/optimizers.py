"""The optimizer of each network."""

import torch
from torch import nn

from advisor.errors import InvalidInput
from advisor.workload.spec import Workload
from advisor.zoo.networks.graph_network import GraphConvolution

# What transformers, ConvNeXt, U-Nets and graph networks are made of.
_WITH_ADAM = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, GraphConvolution)


def optimizer_of(
    network: nn.Module, *, fused: bool = False, capturable: bool = False
) -> torch.optim.Optimizer:
    """The optimizer such networks are usually trained with, at torch's defaults for its kind.

    Plain SGD where gradients are sparse; AdamW for transformers, ConvNeXt, U-Nets and graph
    networks, which their layers tell; SGD with momentum for the rest, convolutional and recurrent
    networks. Rates are low, since the data is random and a step that diverged to NaN would draw
    less power.

    Args:
        network: What it trains.
        fused: One kernel for many weights, which also undoes a gradient scaler's scale.
        capturable: Whether a CUDA graph is to hold its step.
    """
    parameters = list(network.parameters())
    if sparse(network):
        return torch.optim.SGD(parameters, lr=0.01)
    if _has(network, _WITH_ADAM):
        return torch.optim.AdamW(
            parameters, lr=1e-4, capturable=capturable, fused=True if fused else None
        )
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True if fused else None)


def optimizer_for(workload: Workload, network: nn.Module) -> torch.optim.Optimizer:
    """The optimizer with which `workload` trains `network`.

    Raises:
        InvalidInput: Sparse gradients can be neither scaled without a wait nor captured.
    """
    fused, captured = workload.precision == "fp16", workload.execution == "graph"
    if sparse(network) and (fused or captured):
        what = "fp16" if fused else "graph"
        raise InvalidInput(
            f"{workload.name}: the gradients of {workload.model}'s tables are sparse, which {what} "
            f"does not take. Leave out -{what}."
        )
    return optimizer_of(network, fused=fused, capturable=captured)


def sparse(network: nn.Module) -> bool:
    """Whether some gradients of `network` are sparse."""
    return _has(network, (nn.EmbeddingBag,))


def _has(network: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    return any(isinstance(module, kinds) for module in network.modules())

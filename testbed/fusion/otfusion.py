"""OTFusion: align the clients' neurons by optimal transport, then average.

Source: Singh, Jaggi, "Model Fusion via Optimal Transport", NeurIPS 2020 (arXiv 1910.05653),
and the behaviour of the code that FedFisher (AISTATS 2024) published for its comparison.

Notation, per layer with n units that reads the layers S
---------------------------------------------------------
W, V    : weights (n, i) of the client to be aligned and of the pivot, the first client;
          a bias is one more column
T       : transport map (n, n) from the client's units to the pivot's
T_in    : mean of the maps of S, the identity for the picture
W~      : W with its columns transported, W~_u' = sum_u W_u T_in[u, u'] for units u
C       : ground metric, C_ab = ||W~_a - V_b||^2
p_k     : n_k / sum of n, data weight of client k

Layer by layer T = argmin <T, C> over maps with uniform marginals, and the aligned rows are
T^t W~.  Two switches: `correction` divides T by the pivot's marginal 1/n, so that a
permutation is one; without `past_correction` the aligned rows are T^t W.  The combination
is chosen that answers most of the clients' held-out pictures; the fused model is
sum_k p_k aligned_k.  A BatchNorm layer follows the map of the layer it reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import ot
import torch
from torch import Tensor

from testbed.fusion.averaging import data_weights, weighted_mean
from testbed.fusion.chain import Layer, mapped, walk
from testbed.fusion.fsosa import Fused
from testbed.fusion.heldout import HeldOut
from testbed.fusion.network import Network
from testbed.learning.blocks import State, matrix, parameters
from testbed.learning.contribution import Contribution
from testbed.learning.flops import forward_flops
from testbed.learning.statistics import HELD_OUT


@dataclass(frozen=True)
class Switches:
    """How transport maps are applied.

    Attributes
    ----------
    correction : bool
        Rescale the columns of T by the inverse of the pivot's marginals.
    past_correction : bool
        Move the rows of the transported weights, not of the client's own.
    """

    correction: bool
    past_correction: bool


COMBINATIONS = tuple(Switches(one, other) for one in (True, False) for other in (True, False))


def fuse(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator
) -> Fused:
    """Fuse contributions of statistic ``model+holdout``; nothing is random.

    Raises
    ------
    FusionError
        If there is no contribution, the network's units cannot be followed, or no client sent
        a held-out picture.
    """
    data_weights(contributions)
    layers, held_out = walk(network.model), HeldOut.of(contributions)
    candidates = (average(contributions, layers, switches) for switches in COMBINATIONS)
    return Fused(model=held_out.best(network.model, candidates), solves={})


def average(
    contributions: Sequence[Contribution], layers: Sequence[Layer], switches: Switches
) -> dict[str, Tensor]:
    """Return the mean by data weight of the models aligned to the first one."""
    pivot = contributions[0]
    aligned = [
        replace(each, model=align(each.model, pivot.model, layers, switches))
        for each in contributions[1:]
    ]
    return weighted_mean([pivot, *aligned])


def align(
    state: State, pivot: State, layers: Sequence[Layer], switches: Switches
) -> dict[str, Tensor]:
    """Return a client's model with its units in the order of the pivot's."""
    aligned: dict[str, Tensor] = dict(state)
    maps: list[Tensor] = []
    for layer in layers:
        block = layer.block
        own, target = (matrix(block, each).double() for each in (state, pivot))
        sources = [maps[each] for each in layer.sources]
        incoming = torch.stack(sources).mean(dim=0) if sources else None
        if block.norm:
            kept = torch.eye(block.columns).double() if incoming is None else incoming
            maps.append(kept)
            aligned |= _follow(block.name, state, kept)
            continue
        moved = mapped(own, block, incoming)
        outgoing = transport(moved, target)
        if switches.correction:
            outgoing = outgoing * len(outgoing)
        rows = outgoing.T @ (moved if switches.past_correction else own)
        aligned |= parameters(block, rows)
        maps.append(outgoing)
    return {name: value.to(state[name].dtype) for name, value in aligned.items()}


def transport(rows: Tensor, targets: Tensor) -> Tensor:
    """Return the map (n, n) that carries `rows` to `targets` (n, i) at least cost."""
    cost = torch.cdist(rows, targets, compute_mode="donot_use_mm_for_euclid_dist").square()
    uniform = np.full(len(rows), 1 / len(rows))
    return torch.from_numpy(ot.emd(uniform, uniform, cost.numpy()))


def _follow(name: str, state: State, incoming: Tensor) -> dict[str, Tensor]:
    """Carry everything that a normalisation layer keeps by channel."""
    return {
        key: incoming.T @ value.double()
        for key, value in state.items()
        if key.rpartition(".")[0] == name and value.shape == incoming.shape[:1]
    }


def flops(network: Network, members: int) -> int:
    """FLOPs of aligning all but the first client four times, and of choosing.

    A transport problem of n units is counted as n^3.
    """
    aligning = 0
    for layer in walk(network.model):
        o, i = layer.block.rows, layer.block.columns
        units = layer.block.shape[1] if len(layer.block.shape) > 1 else 1
        aligning += 4 * o * o * i + 2 * o * i * units + o**3
    choosing = HELD_OUT * forward_flops(network.model, network.shape)
    return len(COMBINATIONS) * ((members - 1) * aligning + choosing)

"""PFNM: match the clients' neurons under a Beta-Bernoulli process prior.

Source: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks",
ICML 2019 (arXiv 1905.12022), layer by layer as in FedMA (ICLR 2020), and the behaviour of
the code that FedFisher (AISTATS 2024) published for its comparison.

Notation, per layer; v is a client's neuron: its incoming weights, in the order of the global
neurons it reads (zero where the client has none of them), and its bias
----------------------------------------------------------------------------------------------
mu0          : prior mean of a global neuron, 0 for weights and 0.1 for a bias
s0, s, gamma : standard deviations sigma0, sigma, and the mass of the process
J, m         : clients, and clients whose neuron is matched to a global one (at most 10)
theta, r     : natural parameters mu0/s0^2 + sum v/s^2, and precision 1/s0^2 + n/s^2

Gain of matching v to a global neuron, and of making it the k-th new one:
    |theta + v/s^2|^2 / (r + 1/s^2) - |theta|^2 / r + log(m / (J - m))
    |mu0/s0^2 + v/s^2|^2 / (1/s0^2 + 1/s^2) - |mu0/s0^2|^2 s0^2 - 2 log k + 2 log(gamma / J)
The Hungarian method finds the assignment of most gain.  It starts from the widest client,
and in five sweeps of random order each client is taken out and matched anew.  A global
neuron is theta / r.  The output layer is averaged class by class, weighted by how many
samples of the class a client has.

`fuse` allows no layer to outgrow the widest client, for the released model has the clients'
architecture; `grown` builds the published, wider network.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from testbed.errors import FusionError
from testbed.fusion.averaging import data_weights
from testbed.fusion.chain import mapped, walk
from testbed.fusion.fsosa import Fused
from testbed.fusion.network import Network
from testbed.learning.blocks import Block, matrix, parameters
from testbed.learning.contribution import Contribution

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Process:
    """Parameters of the prior and of the search, FedFisher's values.

    Attributes
    ----------
    sigma, sigma0 : float
        Standard deviation of a client's neuron around its global one, and of the prior.
    gamma : float
        Mass of the Beta process: the larger, the more neurons.
    bias : float
        Prior mean of a bias.
    popular : int
        A global neuron's clients are counted up to this number.
    sweeps : int
        Passes over the clients after the first.
    """

    sigma: float = 1.0
    sigma0: float = 1.0
    gamma: float = 7.0
    bias: float = 0.1
    popular: int = 10
    sweeps: int = 5


WIDEST = 700  # neurons that a layer may grow to, unless a client's has more


@dataclass(eq=False)
class Matching:
    """The global neurons of a layer while clients are matched to them.

    Attributes
    ----------
    prior : array, shape (i,)
        mu0.
    by : Process
    clients : int
        J.
    width : int
        Global neurons there may be.
    theta : array, shape (L, i)
    count : int array, shape (L,)
        Clients matched to each; the precision is 1/sigma0^2 + count/sigma^2.
    """

    prior: Array
    by: Process
    clients: int
    width: int
    theta: Array
    count: Ints

    @classmethod
    def empty(cls, prior: Array, by: Process, clients: int, width: int) -> "Matching":
        """Start with no global neuron."""
        return cls(prior, by, clients, width, np.empty((0, len(prior))), np.empty(0, np.int64))

    @property
    def means(self) -> Array:
        """The global neurons, theta / r."""
        return self.theta / self._precision(self.count)[:, None]

    def gains(self, rows: Array) -> Array:
        """Return the gain (l, L + new) of each pair of a client's and a global neuron."""
        by, known = self.by, len(self.theta)
        own, start = rows / by.sigma**2, self.prior / by.sigma0**2
        precision = self._precision(self.count)
        squares = (self.theta**2).sum(axis=1)
        joint = (own**2).sum(axis=1)[:, None] + 2 * own @ self.theta.T + squares
        m = np.minimum(self.count, by.popular)
        matched = joint / (precision + by.sigma**-2) - squares / precision
        matched += np.log(m / (self.clients - m))
        new = np.arange(1, min(len(rows), self.width - known) + 1)
        opened = ((start + own) ** 2).sum(axis=1) / self._precision(1)
        opened -= (start**2).sum() * by.sigma0**2
        price = 2 * np.log(by.gamma / self.clients) - 2 * np.log(new)
        return np.hstack([matched, opened[:, None] + price])

    def add(self, rows: Array) -> Ints:
        """Match a client's neurons (l, i); return the global neuron of each."""
        known = len(self.theta)
        _, chosen = linear_sum_assignment(self.gains(rows), maximize=True)
        opened = chosen >= known
        # New ones are numbered without gaps, in the order of the client's neurons.
        chosen[opened] = known + np.arange(opened.sum())
        start = np.tile(self.prior / self.by.sigma0**2, (opened.sum(), 1))
        self.theta = np.vstack([self.theta, start])
        self.count = np.concatenate([self.count, np.zeros(opened.sum(), np.int64)])
        self.theta[chosen] += rows / self.by.sigma**2
        self.count[chosen] += 1
        return np.asarray(chosen, np.int64)

    def remove(self, rows: Array, assigned: Ints) -> Ints:
        """Take a client's neurons out; return the new numbers of the old global neurons."""
        self.theta[assigned] -= rows / self.by.sigma**2
        self.count[assigned] -= 1
        left = self.count > 0
        self.theta, self.count = self.theta[left], self.count[left]
        return np.cumsum(left) - 1

    def _precision(self, count: Ints | int) -> Array:
        return np.asarray(self.by.sigma0**-2 + count * self.by.sigma**-2)


def match(
    rows: Sequence[Array], prior: Array, width: int, rng: np.random.Generator, by: Process
) -> tuple[list[Ints], Array]:
    """Match the neurons of one layer.

    Parameters
    ----------
    rows : sequence of array, shape (l, i)
        Each client's neurons.
    prior : array, shape (i,)
        Mean of a global neuron before any client was seen.
    width : int
        Global neurons there may be; at least as many as a client has.
    rng : Generator
        Orders the sweeps.
    by : Process

    Returns
    -------
    assignments : list of int array
        The global neuron of each of a client's.
    means : array, shape (L, i)
        The global neurons.
    """
    state = Matching.empty(prior, by, len(rows), width)
    found: dict[int, Ints] = {}
    for client in sorted(range(len(rows)), key=lambda each: -len(rows[each])):
        found[client] = state.add(rows[client])
    for _ in range(by.sweeps):
        for client in rng.permutation(len(rows)):
            numbers = state.remove(rows[client], found.pop(client))
            found = {other: numbers[assigned] for other, assigned in found.items()}
            found[client] = state.add(rows[client])
    return [found[client] for client in range(len(rows))], state.means


def fuse(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator
) -> Fused:
    """Fuse contributions of statistic ``model+classes`` into the clients' architecture.

    A single client's model stays as it is; the prior would only draw it towards zero.

    Raises
    ------
    FusionError
        If there is no contribution, or the network is not a plain chain of layers.
    """
    matched = _matched(contributions, network, rng, grow=False)
    model = dict(contributions[0].model)
    if len(contributions) > 1:
        for block, w in matched:
            for name, value in parameters(block, w).items():
                model[name] = value.to(model[name].dtype)
    return Fused(model=model, solves={})


def grown(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator
) -> nn.Module:
    """Return the network that the published method builds, as wide as its neurons differ.

    Raises
    ------
    FusionError
        As `fuse`.
    """
    model = copy.deepcopy(network.model)
    units = network.shape[0]
    for block, w in _matched(contributions, network, rng, grow=True):
        layer = model.get_submodule(block.name)
        shape = (len(w), units, *block.shape[2:])
        if isinstance(layer, nn.Linear):
            layer.out_features, layer.in_features = shape = (len(w), w.shape[1] - block.bias)
        elif isinstance(layer, nn.Conv2d):
            layer.out_channels, layer.in_channels = shape[:2]
        wide = Block(block.name, shape, block.bias)
        for name, value in parameters(wide, w).items():
            parameter = nn.Parameter(value.to(contributions[0].model[name].dtype))
            setattr(layer, name.rpartition(".")[2], parameter)
        units = len(w)
    return model


def flops(network: Network, members: int) -> int:
    """FLOPs of matching every client in every sweep; an assignment of n is counted as n^3."""
    once = sum(2 * b.rows**2 * b.columns + b.rows**3 for b in network.blocks[:-1])
    return members * (1 + Process().sweeps) * once


def _matched(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator, grow: bool
) -> list[tuple[Block, Tensor]]:
    """Return each layer's block, as the clients have it, and its global matrix (float64)."""
    p = data_weights(contributions)
    layers, by = _chain(network), Process()
    incoming: list[Tensor | None] = [None] * len(contributions)
    found = []
    for block in layers[:-1]:
        rows = [
            mapped(matrix(block, each.model).double(), block, order)
            for each, order in zip(contributions, incoming, strict=True)
        ]
        prior = np.zeros(rows[0].shape[1])
        prior[len(prior) - block.bias :] = by.bias
        width = max(block.rows, WIDEST) if grow else block.rows
        assigned, means = match([each.numpy() for each in rows], prior, width, rng, by)
        incoming = [torch.eye(len(means)).double()[each] for each in assigned]
        found.append((block, torch.from_numpy(means)))
    output = torch.stack(
        [
            mapped(matrix(layers[-1], each.model).double(), layers[-1], order)
            for each, order in zip(contributions, incoming, strict=True)
        ]
    )
    shares = _class_shares(contributions, p)
    found.append((layers[-1], torch.einsum("kc,kci->ci", shares, output)))
    return found


def _class_shares(contributions: Sequence[Contribution], p: Tensor) -> Tensor:
    """Return each client's share (k, c) of the samples of a class, p where there are none."""
    counts = torch.stack([each.extra["classes"].double() for each in contributions])
    total = counts.sum(dim=0)
    return torch.where(total > 0, counts / total.clamp_min(1), p[:, None])


def _chain(network: Network) -> list[Block]:
    layers = walk(network.model)
    for at, layer in enumerate(layers):
        if layer.block.norm or layer.sources != ((at - 1,) if at else ()):
            raise FusionError(
                f"pfnm matches plain chains of layers, and '{layer.block.name}' is "
                f"{'a normalisation layer' if layer.block.norm else 'on a skip path'}; "
                "use lenet, cnn or small-cnn"
            )
    return [layer.block for layer in layers]

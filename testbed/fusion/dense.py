"""DENSE: distil the clients' ensemble into one model, on pictures that a generator draws.

Source: Zhang et al., "DENSE: Data-Free One-Shot Federated Learning", NeurIPS 2022
(arXiv 2112.12371), and the behaviour of the code that FedFisher (AISTATS 2024) published
for its comparison, whose constants these are.

Notation
--------
f_k, p_k : client k's network and data weight n_k / sum of n
D        : ensemble, D(x) = sum_k p_k f_k(x), logits
S        : student, at first the mean model sum_k p_k W_k
G(z)     : pictures, z normal noise
y        : labels drawn at random, one for each picture
T        : temperature of the distillation

An epoch starts with fresh z and a fresh G, both trained by Adam to lower
    CE(D(G(z)), y) + lambda BN - beta mean(KL(D || S) where D and S disagree)
on randomly shifted, mirrored pictures.  BN sums, over the BatchNorm layers of all f_k, the
distances |mean - running mean| and |variance - running variance|; networks without have none.  The
pictures of the lowest loss join the pool.  Then S takes one pass of SGD steps over the
pool, lowering T^2 KL(softmax(D/T) || softmax(S/T)).

FedFisher keeps the best of its students by held-out pictures.  Here the last is released:
the method's claim is to need no data at the coordinator.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import FusionError
from testbed.fusion.averaging import data_weights, weighted_mean
from testbed.fusion.fsosa import Fused
from testbed.fusion.generator import Generator, cropped, flipped
from testbed.fusion.network import Network
from testbed.learning.blocks import State
from testbed.learning.contribution import Contribution
from testbed.learning.devices import on_cpu
from testbed.learning.flops import forward_flops


@dataclass(frozen=True)
class Distillation:
    """Parameters, FedFisher's values.

    Attributes
    ----------
    epochs, steps, batch : int
        Epochs, generator steps in each, and pictures drawn in each.
    nz, ngf : int
        Length of the noise and width of the generator.
    generator_lr : float
        Of Adam with (0.5, 0.999).
    adversarial, statistics : float
        beta and lambda.
    temperature : float
        T.
    lr, momentum : float
        Of the student's SGD.
    """

    epochs: int = 20
    steps: int = 30
    batch: int = 256
    nz: int = 256
    ngf: int = 64
    generator_lr: float = 1e-3
    adversarial: float = 0.5
    statistics: float = 1.0
    temperature: float = 20.0
    lr: float = 0.01
    momentum: float = 0.9


DEFAULT = Distillation()


class Ensemble:
    """The clients' networks, frozen.

    Attributes
    ----------
    norms : list of BatchNorm2d
        Those that keep running statistics, of all networks.
    """

    def __init__(self, model: nn.Module, contributions: Sequence[Contribution]) -> None:
        self._models = [_network(model, each.model) for each in contributions]
        self._weights = [float(p) for p in data_weights(contributions)]
        modules = [module for each in self._models for module in each.modules()]
        self.norms = [
            module
            for module in modules
            if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None
        ]

    def __call__(self, pictures: Tensor) -> Tensor:
        """Return the mean logits by data weight."""
        logits = zip(self._weights, self._models, strict=True)
        return torch.stack([p * model(pictures) for p, model in logits]).sum(dim=0)


def fuse(
    contributions: Sequence[Contribution],
    network: Network,
    rng: np.random.Generator,
    by: Distillation = DEFAULT,
) -> Fused:
    """Distil contributions of statistic ``model``; all that is random comes from `rng`.

    Raises
    ------
    FusionError
        If there is no contribution, or the distillation diverged.
    """
    student = _network(network.model, weighted_mean(contributions))
    ensemble = Ensemble(network.model, contributions)
    source = torch.Generator().manual_seed(int(rng.integers(2**63)))
    generator = _generator(network, by)
    optimiser = torch.optim.SGD(student.parameters(), lr=by.lr, momentum=by.momentum)
    pool: list[Tensor] = []
    for _ in range(by.epochs):
        pool.append(draw(generator, ensemble, student, network.classes, source, by))
        _distil(student, ensemble, torch.cat(pool), optimiser, source, by)
    model = on_cpu(student.state_dict())
    if not all(bool(value.isfinite().all()) for value in model.values()):
        raise FusionError(
            "dense diverged, the student holds NaN or infinite numbers; lower learning.lr so "
            "that clients' logits stay moderate"
        )
    return Fused(model=model, solves={})


def draw(
    generator: Generator,
    ensemble: Ensemble,
    student: nn.Module,
    classes: int,
    source: torch.Generator,
    by: Distillation = DEFAULT,
) -> Tensor:
    """Train the generator from scratch; return its best pictures, (batch, c, h, w) in [0, 1]."""
    generator.reset(source)
    noise = torch.randn(by.batch, by.nz, 1, 1, generator=source).requires_grad_()
    labels = torch.randint(classes, (by.batch,), generator=source)
    optimiser = torch.optim.Adam(
        [*generator.parameters(), noise], lr=by.generator_lr, betas=(0.5, 0.999)
    )
    student.eval().requires_grad_(False)
    least, best = float("inf"), None
    with _distances(ensemble.norms) as distances:
        for _ in range(by.steps):
            distances.clear()
            pictures = generator(noise)
            seen = flipped(cropped(pictures, source), source)
            teacher, answer = ensemble(seen), student(seen)
            loss = functional.cross_entropy(teacher, labels)
            loss = loss - by.adversarial * _disagreement(teacher, answer)
            if distances:
                loss = loss + by.statistics * torch.stack(distances).sum()
            if best is None or loss.item() < least:
                least, best = loss.item(), pictures.detach()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    assert isinstance(best, Tensor)
    return best


def flops(network: Network, members: int, by: Distillation = DEFAULT) -> int:
    """FLOPs of a fusion: a step back costs two forward passes, one through frozen networks."""
    generator = forward_flops(_generator(network, by), (by.nz, 1, 1))
    client = forward_flops(network.model, network.shape)
    drawn = by.epochs * by.steps * by.batch
    seen = by.batch * by.epochs * (by.epochs + 1) // 2
    return drawn * (3 * generator + 2 * (members + 1) * client) + seen * (members + 3) * client


def _distil(
    student: nn.Module,
    ensemble: Ensemble,
    pool: Tensor,
    optimiser: torch.optim.Optimizer,
    source: torch.Generator,
    by: Distillation,
) -> None:
    """Take one pass of the student over the pool, in random order."""
    student.train().requires_grad_(True)
    for chosen in torch.split(torch.randperm(len(pool), generator=source), by.batch):
        pictures = flipped(pool[chosen], source)
        with torch.no_grad():
            teacher = ensemble(pictures) / by.temperature
        answer = student(pictures) / by.temperature
        loss = by.temperature**2 * _divergence(teacher, answer).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def _divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of each row of logits."""
    p, q = functional.log_softmax(teacher, dim=1), functional.log_softmax(student, dim=1)
    return torch.sum(p.exp() * (p - q), dim=1)


def _disagreement(teacher: Tensor, student: Tensor) -> Tensor:
    """Return the mean divergence, counted where the two answer differently."""
    differ = teacher.argmax(dim=1) != student.argmax(dim=1)
    return torch.mean(_divergence(teacher, student) * differ)


@contextmanager
def _distances(norms: Sequence[nn.BatchNorm2d]) -> Iterator[list[Tensor]]:
    """Collect, at every forward pass, how far inputs are from what each layer saw in training."""
    found: list[Tensor] = []

    def hook(norm: nn.BatchNorm2d, inputs: tuple[Tensor], output: Tensor) -> None:
        variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3), correction=0)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        found.append((norm.running_var - variance).norm() + (norm.running_mean - mean).norm())

    handles = [norm.register_forward_hook(hook) for norm in norms]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _generator(network: Network, by: Distillation) -> Generator:
    with torch.random.fork_rng(devices=[]):  # the weights that torch draws are not used
        return Generator(by.nz, by.ngf, network.shape)


def _network(model: nn.Module, state: State) -> nn.Module:
    """Return a frozen copy of `model` on the CPU, in eval mode, with the weights of `state`."""
    network = copy.deepcopy(model).cpu()
    network.load_state_dict(dict(state))
    return network.eval().requires_grad_(False)

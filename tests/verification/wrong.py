"""Deliberately wrong variants of what the certificate verifies."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from torch import Tensor

from testbed.config import Experiment
from testbed.editing import fsosa
from testbed.editing.clients import Change, Client
from testbed.editing.coupling import couple, draw
from testbed.editing.fsosa import Diagnostics, Parameters, State
from testbed.editing.orders import Work
from testbed.experiments.run import run
from testbed.fusion.fsosa import Fused, fuse
from testbed.fusion.kronecker import KroneckerSum

Subset = tuple[Client, ...]


# --- couplings -------------------------------------------------------------------------


def wrong(variant: Callable[..., Subset | None]) -> Callable[..., Subset]:
    """Return a coupling that gives what `variant` does, and the right one where that is None."""

    @wraps(variant)
    def coupling(*arguments: Any) -> Subset:
        made = variant(*arguments[:5])
        return couple(*arguments) if made is None else made

    return coupling


@wrong
def insertion_with_p_over_m(population, subset, change, size, rng) -> Subset | None:
    """A lone newcomer enters with probability P / M instead of P / (M + 1)."""
    if change.departures or len(change.arrivals) != 1 or len(subset) < size:
        return None
    chosen = set(subset)
    if rng.integers(len(population)) < size:
        chosen.remove(sorted(chosen)[rng.integers(size)])
        chosen.update(change.arrivals)
    return tuple(sorted(chosen))


@wrong
def lowest_id(population, subset, change, size, rng) -> Subset | None:
    """Departed members are replaced by the clients that come first, not by random ones."""
    after = change.applied(population)
    if change.arrivals or not change.departures or len(after) < size:
        return None
    kept = set(subset) - set(change.departures)
    outside = [client for client in after if client not in kept]
    return tuple(sorted(kept.union(outside[: size - len(kept)])))


@wrong
def resampling(population, subset, change, size, rng) -> Subset | None:
    """A leave that hits the subset draws all of it anew: exact, but dearer than need be."""
    after = change.applied(population)
    hit = set(subset) & set(change.departures)
    return None if change.arrivals or not hit or len(after) < size else draw(after, size, rng)


@wrong
def never_refusing(population, subset, change, size, rng) -> Subset | None:
    """Always shrinks."""
    return couple(population, subset, change, size, rng, "shrink")


# --- fusions ---------------------------------------------------------------------------


def warm_start() -> Callable[..., Fused]:
    """Return a fusion whose solver starts from the solution it found last time."""
    known: dict[tuple[int, ...], Tensor] = {}
    cold = KroneckerSum.solve

    def warm(self: KroneckerSum, rhs: Tensor, rtol: float, most: int) -> Any:
        start = known.get(tuple(rhs.shape), rhs * 0)
        step, solve = cold(self, rhs - self.operator()(start), rtol, most)
        known[tuple(rhs.shape)] = start + step
        return start + step, solve

    def fusing(*arguments: Any) -> Fused:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KroneckerSum, "solve", warm)
            return fuse(*arguments)

    return fusing


def newest_first(contributions: Sequence[Any], *rest: Any) -> Fused:
    """Sum in another order than the canonical one."""
    return fuse(tuple(reversed(contributions)), *rest)


# --- edits -----------------------------------------------------------------------------


def keeping_contributions(
    state: State, change: Change, parameters: Parameters, rng: Any
) -> Work[tuple[State, Diagnostics]]:
    """Evicted clients' contributions stay where they are."""
    edited, diagnostics = yield from fsosa.apply(state, change, parameters, rng)
    kept = {**state.contributions, **edited.contributions}
    return replace(edited, contributions=kept), diagnostics


def keeping_a_view(
    state: State, change: Change, parameters: Parameters, rng: Any
) -> Work[tuple[State, Diagnostics]]:
    """One number of the former subset's weights stays, and with it all of their memory."""
    edited, diagnostics = yield from fsosa.apply(state, change, parameters, rng)
    if edited.subset == state.subset:
        return edited, diagnostics
    scraps = [each.model["0.weight"].view(-1)[:1] for each in state.contributions.values()]
    object.__setattr__(edited, "scraps", scraps)
    return edited, diagnostics


def stale_model(
    state: State, change: Change, parameters: Parameters, rng: Any
) -> Work[tuple[State, Diagnostics]]:
    """The model released before the edit is released again."""
    edited, diagnostics = yield from fsosa.apply(state, change, parameters, rng)
    return replace(edited, fused=state.fused), diagnostics


# --- runs ------------------------------------------------------------------------------


def run_with_checkpoints(weights: dict[str, Tensor]) -> Callable[[Experiment, Path], list[Any]]:
    """Return a run that also leaves `weights` in its folder."""

    def running(experiment: Experiment, out: Path) -> list[Any]:
        done = list(run(experiment, out))
        save_file(weights, done[0].cell.folder / "checkpoint.safetensors")
        return done

    return running

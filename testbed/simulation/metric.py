"""What is noted of a released model: one row of ``metrics.csv``, and a detector's details."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reports read this module, and need no torch
    from testbed.learning.evaluation import Detail


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of ``metrics.csv``: a request and the model released after it.

    Attributes
    ----------
    request : int
        0 for the initial training, then 1, 2, ... in order of arrival.
    t : float
        Simulated second at which the request was made.
    kind : {"init", "join", "leave"}
    vehicle : str
        Empty for the initial training.
    partition : int
        The data partition the vehicle holds or held; -1 for the initial training.
    t_start, t_end : float
        When its handling began, and when the resulting model was released.
    batch : int
        Requests handled together with this one, itself included.
    population, subset : int
        M and P after the request (for a batch: after the batch).
    subset_changed : bool
    replaced : int
        Members of the subset that were replaced.
    triggered : bool
        The released model changed.
    server_bytes : int
        Serialised size of everything the coordinator keeps after the request.
    accuracy, loss : float
        Of the released model on the test set: share of correct labels, mean loss.  NaN where
        it does not apply, as for all four where nothing is trained.
    map50_95, map50 : float
        Mean average precision of a detector, convention ``coco``.
    iterations : int
        CG steps of the projection, the most over the layers; 0 without a projection.
    residual : float
        True relative residual of the projection, the largest over the layers.
    converged : bool
        Every layer reached its tolerance.
    """

    request: int
    t: float
    kind: str
    vehicle: str
    partition: int
    t_start: float
    t_end: float
    batch: int
    population: int
    subset: int
    subset_changed: bool
    replaced: int
    triggered: bool
    server_bytes: int
    accuracy: float | None
    loss: float | None
    map50_95: float | None
    map50: float | None
    iterations: int
    residual: float
    converged: bool


@dataclass(frozen=True)
class Judged:
    """How a released detector does, in full.

    Attributes
    ----------
    request : int
        In whose handling it was released.
    details : tuple of Detail
    """

    request: int
    details: "tuple[Detail, ...]"

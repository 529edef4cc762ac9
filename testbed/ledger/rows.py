"""One row per billed step: the ledger is a table of these."""

from dataclasses import dataclass, fields
from typing import Literal

RequestKind = Literal["init", "join", "leave", "batch"]
Phase = Literal["broadcast", "download", "train", "fisher", "upload", "fuse", "solve", "evaluate"]
Result = Literal["ok", "unusable", "lost", "unconverged"]

COORDINATOR = "coordinator"
EVERYONE = "all"


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One billed step of one run.

    Attributes
    ----------
    run : str
        ``<method>-<config hash>``.
    seed : int
    method : str
    rho : float
    density : float or None
        Seconds between departures, where the scenario has that parameter.
    request : int
        0 for the initial training, then 1, 2, ... in order of arrival.  A batch is billed
        on its last request.
    kind : {"init", "join", "leave", "batch"}
    vehicle : str
        The vehicle that worked or received, `COORDINATOR`, or `EVERYONE` for a broadcast.
    phase : str
        What was done.
    round : int
        Training round within the request, 1, 2, ...; 0 where a method has none.
    t_start, t_end : float
        Simulated seconds.  Steps of different vehicles overlap.
    compute_s_measured : float or None
        Wall-clock seconds of the real computation, in measured mode only, so that the
        ledger of modelled time is the same on every machine.
    compute_s_billed, network_s : float
        Seconds of computation and of transfer charged; they add up to ``t_end - t_start``.
    bytes_down, bytes_up : int
        Serialised bytes towards and from vehicles.
    byte_basis : {"serialised", "tensor", "air"}
    population, subset : int
        M and P when the step ran; `subset` is 0 for methods that keep none.
    reused : bool
        The same contribution had already been trained in this run; billed all the same.
    triggered : bool
        The request changed the released model.
    result : {"ok", "unusable", "lost", "unconverged"}
        ``unusable``: a client's training, Fisher or upload that nothing could be made of, so
        that it was treated as if it had left.  ``lost``: what a client had done of a step when
        it left in the middle, with the seconds and bytes so far.  ``unconverged``: a solve
        that missed its tolerance in some layer and was used all the same.
    """

    run: str
    seed: int
    method: str
    rho: float
    density: float | None
    request: int
    kind: RequestKind
    vehicle: str
    phase: Phase
    round: int
    t_start: float
    t_end: float
    compute_s_measured: float | None
    compute_s_billed: float
    network_s: float
    bytes_down: int
    bytes_up: int
    byte_basis: str
    population: int
    subset: int
    reused: bool
    triggered: bool
    result: Result


COLUMNS = tuple(field.name for field in fields(LedgerRow))

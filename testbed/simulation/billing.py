"""From what was done to what is billed: the steps of one request become ledger rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.ledger import LedgerRow
from testbed.ledger.rows import Phase, RequestKind, Result
from testbed.simulation.clock import seconds


@dataclass(frozen=True, slots=True)
class Step:
    """One billed step, in whole microseconds.

    Attributes
    ----------
    vehicle : str
    phase : str
    start, end : int
        Microseconds; all of ``end - start`` is either computing or transferring.
    network : bool
        It is a transfer.
    down, up : int
        Serialised bytes.
    measured : float or None
        Wall-clock seconds of the real computation.
    reused : bool
    result : {"ok", "unusable", "lost", "unconverged"}
    round : int
        Of training within the request; 0 where a method has none.
    """

    vehicle: str
    phase: Phase
    start: int
    end: int
    network: bool = False
    down: int = 0
    up: int = 0
    measured: float | None = None
    reused: bool = False
    result: Result = "ok"
    round: int = 0


@dataclass(frozen=True)
class Account:
    """What all rows of one run share."""

    run: str
    seed: int
    method: str
    rho: float
    density: float | None
    measured: bool

    def rows(
        self,
        steps: Sequence[Step],
        request: int,
        kind: RequestKind,
        population: int,
        subset: int,
        triggered: bool,
    ) -> tuple[LedgerRow, ...]:
        """Write the steps of one request as ledger rows, in order of start, then vehicle."""
        ordered = sorted(steps, key=lambda step: (step.start, step.vehicle, step.end))
        return tuple(
            LedgerRow(
                run=self.run,
                seed=self.seed,
                method=self.method,
                rho=self.rho,
                density=self.density,
                request=request,
                kind=kind,
                vehicle=step.vehicle,
                phase=step.phase,
                round=step.round,
                t_start=seconds(step.start),
                t_end=seconds(step.end),
                compute_s_measured=step.measured if self.measured else None,
                compute_s_billed=0.0 if step.network else seconds(step.end - step.start),
                network_s=seconds(step.end - step.start) if step.network else 0.0,
                bytes_down=step.down,
                bytes_up=step.up,
                byte_basis="serialised",
                population=population,
                subset=subset,
                reused=step.reused,
                triggered=triggered,
                result=step.result,
            )
            for step in ordered
        )

"""Figures of an audit: whether a method's edits can be told from retraining by attacks."""

import json
from typing import Literal

from testbed.claims.measured import OWN, Evidence, Measured, exactly
from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.verification.audited import VERDICTS

# Smaller p-values mean no more.
_LEAST_P = 1e-4
_WHAT = {"p": "p_value", "control": "control_p", "auc": "auc"}


def told_apart(
    evidence: Evidence, what: Literal["p", "control", "auc"], method: str = OWN
) -> Measured:
    """Return what the audits of all runs say of a method's edits; the worst of the seeds.

    Parameters
    ----------
    evidence : Evidence
    what : {"p", "control", "auc"}
        The smallest p-value of edited against retrained models times the number of tests and
        of seeds; the largest one of models that keep the contribution, which must be told
        apart; how likely an edited model fits the withdrawn client's data better than a
        retrained one, the farthest from one half.  What is below 0.0001 counts as 0.0001.
    method : str
        The runs' own, or one beside it.
    """
    found = [_said(run, method, _WHAT[what]) for run in evidence.of(OWN)]
    if what == "p":
        return Measured(exactly(max(_LEAST_P, min(1.0, len(found) * min(found))), len(found)))
    if what == "control":
        return Measured(exactly(max(_LEAST_P, *found), len(found)))
    return Measured(exactly(max(found, key=lambda value: abs(value - 0.5)), len(found)))


def _said(run: Run, method: str, what: str) -> float:
    path = run.folder / VERDICTS
    try:
        found = float(json.loads(path.read_text(encoding="utf-8"))["verdicts"][method][what])
        if not 0 <= found <= 1:
            raise ValueError(f"{what} is {found}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ResultsError(
            f"{path}: not the verdicts of an audit ({error}); remove it and run the command again"
        ) from error
    return found

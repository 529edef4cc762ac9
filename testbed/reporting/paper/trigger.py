"""How often an edit changes the subset, and the bound on it.

A deletion changes it with probability P/M, an insertion with P/(M+1), M clients before the
request; a batch of k changes with probability min(1, 2 ρ k) at most (paper, section IV).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import manifest_value
from testbed.reporting.intervals import ratio
from testbed.reporting.lines import ticks
from testbed.reporting.paper.axis import RHO
from testbed.reporting.settings import configuration
from testbed.reporting.style import COLUMN, legend_above, looks, new_figure, styled
from testbed.reporting.units import range_text

METHOD = "fsosa"  # whose subset follows the coupling that has these bounds
_TITLE = "mean of n requests, bars: 95 % interval over seeds"
_TITLES = {"leave": "deletions", "join": "insertions", "batch": "batches"}
_BOUNDS = {"leave": "P/M", "join": "P/(M+1)", "batch": "min(1, 2ρk)"}


def trigger(runs: Sequence[Run], width: float = COLUMN) -> Figure:
    """Draw the share of requests that changed the subset, over ρ, with the mean bound.

    Raises
    ------
    ResultsError
        If no run is of F-SOSA, or ρ does not vary.
    """
    own = [run for run in runs if run.method == METHOD]
    if not own:
        raise ResultsError(
            f"trigger is about {METHOD}, and no run is of it; add it to editing.methods"
        )
    RHO.key(own, "trigger")
    answered = pd.concat([answers(run) for run in own], ignore_index=True)
    kinds = [kind for kind in _TITLES if (answered["what"] == kind).any()]
    with styled():
        figure = new_figure(width, 2.4)
        (panels,) = figure.subplots(1, len(kinds), sharey=True, squeeze=False)
        for axes, kind in zip(panels, kinds, strict=True):
            some = answered[answered["what"] == kind]
            _draw(axes, some)
            n = range_text(map(len, rates(some).values()))
            axes.set_title(f"{_TITLES[kind]}, n = {n}\nbound {_BOUNDS[kind]}")
            axes.set_xlabel("ρ k" if kind == "batch" else RHO.label)
        panels[0].set_ylabel("subset changed (%)")
        panels[0].set_ylim(0, 100)
        legend_above(figure, panels[0], title=_TITLE)
    return figure


def answers(run: Run) -> pd.DataFrame:
    """Return one row per handled change of a run, the initial training left out.

    Returns
    -------
    DataFrame
        ``seed``, ``rho``; ``what``: leave, join, or batch for several at once; ``k`` of them;
        ``changed``: whether the subset did; ``bound`` on the probability of that.
    """
    metrics = run.metrics.sort_values("request")
    rho = float(configuration(run)["editing.rho"])
    size = int(manifest_value(run, "subset_size"))
    # A batch shares its release: its last row stands for it.
    last = metrics[metrics["t_end"].ne(metrics["t_end"].shift(-1)) | (metrics["batch"] == 1)]
    before = last["population"].shift(1)
    alone = last["batch"] == 1
    what = last["kind"].where(alone, "batch")
    bound = np.select(
        [what == "leave", what == "join"],
        [size / before, size / (before + 1)],
        2 * rho * last["batch"],
    )
    table = pd.DataFrame(
        {
            "seed": run.seed,
            "rho": rho,
            "what": what,
            "k": last["batch"],
            "changed": last["subset_changed"],
            "bound": np.minimum(1.0, bound),
        }
    )
    return table[last["request"] > 0]


def rates(answered: pd.DataFrame) -> Mapping[float, pd.DataFrame]:
    """Group changes by where they stand: ρ, or ρ k for batches."""
    place = answered["rho"] * answered["k"].where(answered["what"] == "batch", 1)
    return {float(x): some for x, some in answered.groupby(place.round(9))}


def _draw(axes: Axes, answered: pd.DataFrame) -> None:
    groups = rates(answered)
    x = list(groups)
    found = []
    for some in groups.values():
        # Runs of one seed share the draws of their coordinators.
        by_seed = some.groupby("seed")["changed"]
        found.append(ratio(100 * by_seed.sum().to_numpy(), by_seed.count().to_numpy()))
    look = looks([METHOD])[METHOD]
    middle = np.array([float(one.mean) for one in found])
    reach = [
        middle - [float(one.low) for one in found],
        np.array([float(one.high) for one in found]) - middle,
    ]
    axes.plot(
        x,
        [100 * float(some["bound"].mean()) for some in groups.values()],
        color="black",
        linestyle=(0, (4, 1.5)),
        linewidth=1.0,
        label="bound",
    )
    axes.errorbar(
        x,
        middle,
        yerr=np.abs(reach),
        color=look.color,
        marker=look.marker,
        linestyle="none",
        label="measured",
    )
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(ticks(whole=False))

"""How much of a data set a claim was tried on, and which figures depend on that."""

from collections.abc import Mapping, Sequence

from testbed.config.cards import FigureConfig, Scale
from testbed.experiments.rundir import Run

# Training pictures of the sets that the paper uses; of FEMNIST it takes a tenth of LEAF's
# users, so about a tenth of LEAF's 805,263 pictures.
PUBLISHED: Mapping[str, int] = {
    "mnist": 60_000,
    "fashion-mnist": 60_000,
    "svhn": 73_257,
    "cifar10": 50_000,
    "femnist": 80_526,
    "bdd100k": 70_000,
}
# What is sent and who is asked does not depend on how many pictures a client has.
_INDEPENDENT_OF = ("bytes", "edits")
_INDEPENDENT = ("share", "triggered", "replaced", "unselected", "unstable", "violations")


def too_little(figure: FigureConfig, scale: Scale, name: str, runs: Sequence[Run]) -> str | None:
    """Say why a figure was not tried at the paper's scale, if its data set was not whole.

    Parameters
    ----------
    figure : FigureConfig
    scale : {"smoke", "small", "paper"}
    name : str
        Of the data set.
    runs : sequence of Run
        That the figure was measured on.
    """
    independent = figure.measure in _INDEPENDENT or figure.options.get("of") in _INDEPENDENT_OF
    whole = PUBLISHED.get(name)
    if scale != "paper" or independent or whole is None:
        return None
    had = min((run.manifest["data"].get("pictures", 0) for run in runs), default=whole)
    if had >= whole:
        return None
    if not had:
        return "the runs do not say how many pictures they had; remove them and run it again"
    return f"only {had:,} of {whole:,} training pictures were at hand"

"""What an audit found, as rows of one table: a quantity, its interval, and how many it is from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import nan, sqrt

from testbed.editing.clients import Client
from testbed.privacy.comparison import Comparison
from testbed.privacy.forgetting import Forgetting, Trials
from testbed.privacy.influence import NORMAL, Influence
from testbed.privacy.roc import Curve, Floats, Measured


@dataclass(frozen=True, slots=True)
class Row:
    """One number of ``audit.csv``.

    Attributes
    ----------
    part : {"attack", "forgetting", "relearning", "influence"}
    model : str
        ``released``: the model in the run folder; ``fresh``: models of the same law; else the
        method that made the models.
    target : str
        ``pictures``, ``clients``, a client as ``vehicle/partition``, or ``all``.
    who : str
        Attacks: ``members`` or ``withdrawn``.  Forgetting and relearning: ``edited``,
        ``retrained``, or ``control`` for models before the edit.  Influence: on whose pictures.
    statistic : str
        The attack, or the statistic that was compared.
    quantity : str
    value, low, high : float
        NaN where it cannot be measured; the interval is one of 95 %.
    n, m : int
        Sizes of the two samples: members and non-members, edited and retrained models, models
        with a client and without it.
    """

    part: str
    model: str
    target: str
    who: str
    statistic: str
    quantity: str
    value: float
    low: float
    high: float
    n: int
    m: int


@dataclass(frozen=True, eq=False)
class Line:
    """A ROC curve to draw: of an attack, or of what tells a method's edits from retraining."""

    panel: str
    label: str
    curve: Curve


@dataclass(frozen=True, eq=False)
class Findings:
    """Results so far.

    Attributes
    ----------
    rows : tuple of Row
    lines : tuple of Line
    remarks : tuple of str
        What could not be measured and how many it takes; one line each.
    """

    rows: tuple[Row, ...] = ()
    lines: tuple[Line, ...] = ()
    remarks: tuple[str, ...] = ()

    def __add__(self, other: "Findings") -> "Findings":
        """Join the results, each remark once."""
        remarks = tuple(dict.fromkeys(self.remarks + other.remarks))
        return Findings(self.rows + other.rows, self.lines + other.lines, remarks)


COLUMNS = tuple(field.name for field in fields(Row))


def named(client: Client) -> str:
    """Return a client's name in tables.

    >>> named(Client("veh3", 7))
    'veh3/7'
    """
    return f"{client.vehicle}/{client.partition}"


def attack_rows(
    model: str, who: str, level: str, attack: str, measured: Measured
) -> Iterator[Row]:
    """Yield what an attack achieves."""
    for name, of in measured.quantities.items():
        yield Row(
            part="attack",
            model=model,
            target=level,
            who=who,
            statistic=attack,
            quantity=name,
            value=of.value,
            low=of.low,
            high=of.high,
            n=measured.members,
            m=measured.others,
        )


def forgetting_rows(method: str, found: Forgetting) -> Iterator[Row]:
    """Yield all comparisons of a method's models, and the verdict's p-values."""
    for who, comparisons in (("edited", found.edited), ("control", found.control)):
        for (client, statistic), one in comparisons.items():
            for quantity in ("ks", "ks_p", "auc", "auc_p"):
                value = float(getattr(one, quantity))
                yield _of_method(
                    "forgetting", method, named(client), who, statistic, quantity, value, one
                )
        p_value = found.verdict.p_value if who == "edited" else found.verdict.control_p
        some = next(iter(comparisons.values()))
        yield _of_method("forgetting", method, "all", who, "all", "p_adjusted", p_value, some)


def _of_method(
    part: str,
    method: str,
    target: str,
    who: str,
    statistic: str,
    quantity: str,
    value: float,
    sizes: Comparison,
) -> Row:
    return Row(part, method, target, who, statistic, quantity, value, nan, nan, sizes.n, sizes.m)


def relearning_rows(method: str, trials: Sequence[Trials]) -> Iterator[Row]:
    """Yield the mean epochs until a client's loss is back."""
    for each in trials:
        for who, epochs in (("edited", each.relearnt), ("retrained", each.relearnt_anew)):
            if len(epochs):
                mean, half = float(epochs.mean()), _half(epochs)
                yield Row(
                    part="relearning",
                    model=method,
                    target=named(each.client),
                    who=who,
                    statistic="loss",
                    quantity="epochs",
                    value=mean,
                    low=mean - half,
                    high=mean + half,
                    n=len(epochs),
                    m=0,
                )


def _half(values: Floats) -> float:
    return NORMAL * float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else nan


def influence_rows(
    method: str, clients: Sequence[Client], found: Sequence[Influence]
) -> Iterator[Row]:
    """Yield how much each client's presence lowers which losses."""
    for client, one in zip(clients, found, strict=True):
        for who in ("own", "held", "others"):
            gap = getattr(one, who)
            yield Row(
                part="influence",
                model=method,
                target=named(client),
                who=who,
                statistic="loss",
                quantity="loss_without_minus_with",
                value=gap.value,
                low=gap.low,
                high=gap.high,
                n=one.inside,
                m=one.outside,
            )

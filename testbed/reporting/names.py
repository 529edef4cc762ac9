"""The methods' display names and their order."""

from collections.abc import Iterable

_NAMES = {
    "fsosa": "F-SOSA-U/I",
    "retrain": "Retrain",
    "finetune": "Fine-tune",
    "federaser": "FedEraser",
    "fedrr": "FedRR",
    "fats-cu": "FATS-CU",
    "fedavg": "FedAvg",
    "fisher-merging": "Fisher merging",
    "fedfisher": "FedFisher",
    "fedfisher-diagonal": "FedFisher (diagonal)",
    "regmean": "RegMean",
    "fedlpa": "FedLPA",
    "ma-echo": "MA-Echo",
    "otfusion": "OTFusion",
    "pfnm": "PFNM",
    "dense": "DENSE",
}


def label(method: str) -> str:
    """Return the display name of a method.

    >>> label("fsosa"), label("fedrr"), label("mine")
    ('F-SOSA-U/I', 'FedRR', 'mine')
    """
    return _NAMES.get(method, method)


def order(methods: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct `methods`: the known ones first, in fixed order, then by name.

    >>> order(["retrain", "mine", "fsosa", "retrain"])
    ('fsosa', 'retrain', 'mine')
    """
    named = set(methods)
    return (*(name for name in _NAMES if name in named), *sorted(named - _NAMES.keys()))

"""The methods' display names and their order."""

from collections.abc import Iterable

_NAMES = {"fsosa": "F-SOSA-U/I", "retrain": "Retrain", "finetune": "Fine-tune"}


def label(method: str) -> str:
    """Return the display name of a method.

    >>> label("fsosa"), label("fedrr")
    ('F-SOSA-U/I', 'fedrr')
    """
    return _NAMES.get(method, method)


def order(methods: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct `methods`: the known ones first, in fixed order, then by name.

    >>> order(["retrain", "fedrr", "fsosa", "retrain"])
    ('fsosa', 'retrain', 'fedrr')
    """
    named = set(methods)
    return (*(name for name in _NAMES if name in named), *sorted(named - _NAMES.keys()))

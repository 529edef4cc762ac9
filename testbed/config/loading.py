"""A file and ``--set`` values in, an `Experiment` out; every mistake becomes one line."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from testbed.config.documents import Document, merge, parse_override, read, show
from testbed.config.scales import scaled
from testbed.config.schema import Experiment
from testbed.config.spec import keys
from testbed.errors import ConfigError

S = TypeVar("S", bound=BaseModel)

_NUMBER = "must be a number"
_WHOLE = "must be a whole number"
# Pydantic's kinds of mistake, in plain words.
_RULES = {
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be a finite number",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "string_type": "must be text; put it in quotes",
    "string_pattern_mismatch": "must begin with a letter or digit and hold only "
    "letters, digits, '.', '_' and '-'",
    "path_type": "must be a path",
    "tuple_type": "must be a list",
    "model_type": "must be a section with keys of its own",
    "dict_type": "must be a section with keys of its own",
    "too_short": "must have at least {min_length}",
    "string_too_short": "must not be empty",
    "literal_error": "must be {expected}",
}


def load(path: Path | None, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment from a YAML file and ``--set`` values.

    Parameters
    ----------
    path : Path or None
        A YAML file; without one every key has its default.  The file may name another
        one to start from, ``extends: other.yaml``, relative to itself, and hold ``scales``,
        see `testbed.config.scales`.  Relative paths in a file are relative to that file.
    overrides : sequence of str
        ``"editing.rho=0.3"``: dotted key and a YAML value; a list may also be written
        ``0,1``.  They win over the file, the last one over the others.  Relative paths
        are relative to the current directory.

    Raises
    ------
    ConfigError
        If a file is missing or is not YAML, or a key or value is not allowed.
    """
    document = _sections(Experiment)
    try:
        given: Document = {}
        for layer in map(parse_override, overrides):
            given = merge(given, layer)
        file = scaled(path, {} if path is None else read(path), given)
        document = merge(merge(document, file), given)
        experiment = validated(Experiment, document)
    except RecursionError:
        raise ConfigError(f"{path or '--set'}: nested too deeply; keys go two deep") from None
    _refuse_booleans(document, experiment)
    return experiment


def validated(model: type[S], document: Mapping[str, Any]) -> S:
    """Check a document against a schema.

    Raises
    ------
    ConfigError
        If a key or value is not allowed.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        lines = dict.fromkeys(
            _describe(detail, model) for detail in error.errors() if not _follows(detail)
        )
        raise ConfigError("; ".join(lines)) from None


def _sections(model: type[BaseModel]) -> Document:
    """Return the schema's sections, empty, so that ``mobility:`` alone is an empty section."""
    sections: Document = {}
    for path in keys(model):
        within = sections
        for name in path.split(".")[:-1]:
            within = within.setdefault(name, {})
    return sections


def checked(kind: Any, value: object, name: str) -> Any:
    """Return a value as a type wants it, lists as tuples; names it where it is another one.

    Raises
    ------
    ConfigError
    """
    try:
        return TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        detail = error.errors()[0]
        place = "".join(f"[{part}]" for part in detail["loc"] if isinstance(part, int))
        raise ConfigError(f"{name}{place}: {show(detail['input'])}: {detail['msg']}") from None


def _follows(detail: ErrorDetails) -> bool:
    """Whether a list is only too short because what is wrong in it is left out."""
    least = detail.get("ctx", {}).get("min_length", 0)
    return detail["type"] == "too_short" and len(detail["input"]) >= least


def _describe(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """Say in one line what pydantic found wrong."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    path = path.removeprefix(".")
    path = path if path.isprintable() else show(path)
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{path}: unknown key; {_suggestion(path, model)}"
    if kind == "missing":
        return f"{path}: is missing"
    if kind == "value_error":
        return f"{path}: {context['error']}" if path else str(context["error"])
    rule = _RULES.get(kind, f"is not allowed: {detail['msg']}").format_map(context)
    return f"{path}: {show(detail['input'])} {rule}"


def _suggestion(path: str, model: type[BaseModel]) -> str:
    """Name the key meant: one of the same section, else one of the same name elsewhere."""
    section, _, name = path.rpartition(".")
    siblings: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for key in keys(model):
        names = key.split(".")
        for depth in range(1, len(names) + 1):
            known = ".".join(names[:depth])
            same = ".".join(names[: depth - 1]) == section
            (siblings if same else elsewhere).setdefault(names[depth - 1], known)
    for candidates, cutoff in ((siblings, 0.6), (elsewhere, 0.8)):
        if near := get_close_matches(name, candidates, n=1, cutoff=cutoff):
            return f"did you mean {candidates[near[0]]}?"
    return f"known here: {', '.join(siblings)}" if siblings else "there is no such key"


def _refuse_booleans(document: Mapping[str, Any], section: BaseModel, prefix: str = "") -> None:
    """Refuse ``true`` where pydantic took it for the number 1."""
    for name, raw in document.items():
        path, taken = f"{prefix}{name}", getattr(section, name)
        if isinstance(taken, BaseModel):
            _refuse_booleans(raw, taken, f"{path}.")
        elif isinstance(raw, list):
            for index, (each, value) in enumerate(zip(raw, taken, strict=True)):
                _refuse_boolean(f"{path}[{index}]", each, value)
        else:
            _refuse_boolean(path, raw, taken)


def _refuse_boolean(path: str, raw: object, taken: object) -> None:
    if isinstance(raw, bool) and not isinstance(taken, bool):
        raise ConfigError(f"{path}: {show(raw)} {_NUMBER}")

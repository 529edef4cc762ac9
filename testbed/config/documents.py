"""YAML files and ``--set`` values as plain nested dictionaries, not yet checked."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

import yaml

from testbed.config.spec import keys
from testbed.errors import ConfigError

Document = dict[str, Any]

_PATH_KEYS = (
    ("mobility", "trace"),
    ("data", "path"),
    ("data", "labels"),
    ("data", "test_path"),
    ("data", "test_labels"),
    ("detection", "weights"),
    ("execution", "cache"),
    ("execution", "store"),
)
_STRING, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_LONGEST = 60


def read(path: Path, above: tuple[Path, ...] = ()) -> Document:
    """Read a YAML file laid over the files it extends.

    Parameters
    ----------
    path : Path
        The file; relative paths in it become relative to where it stands.
    above : tuple of Path
        The files that led here through ``extends:``, for messages and against cycles.

    Raises
    ------
    ConfigError
        If a file is missing, not YAML, not a mapping, or extends itself.
    """
    if os.path.realpath(path) in map(os.path.realpath, above):
        chain = " extends ".join(str(other) for other in (*above, path))
        raise ConfigError(f"{chain}: a file cannot extend itself; remove one 'extends'")
    document = _read_one(path, f" (extended by {above[-1]})" if above else "")
    _anchor(document, path.parent)
    base = document.pop("extends", None)
    if base is None:
        return document
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends: {show(base)} must be the name of one file")
    return merge(read(Path(_relative(base, path.parent)), (*above, path)), document)


def parse_override(text: str) -> Document:
    """Turn ``a.b=value`` into ``{"a": {"b": value}}``; a list may be written ``0,1``."""
    key, sign, written = text.partition("=")
    key = key.strip()
    names = key.split(".")
    if not sign or not all(names):
        raise ConfigError(
            f"--set {show(text)}: write KEY=VALUE, for example --set editing.rho=0.3"
        )
    value = _parse_value(key, written)
    field = keys().get(key)
    if field and get_origin(field.annotation) is tuple and not isinstance(value, list):
        value = [_parse_value(key, part) for part in written.split(",")]
    document: Document = {names[-1]: value}
    for name in reversed(names[:-1]):
        document = {name: document}
    _anchor(document, Path())
    return document


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Document:
    """Lay one document over another, section by section; lists are replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        below = base.get(key)
        if isinstance(below, dict) and isinstance(value, dict | None):
            merged[key] = merge(below, value or {})
        else:
            merged[key] = value
    return merged


def show(value: object) -> str:
    """Render a received value as the user would write it, in one short line."""
    if value is None:
        return "null"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def parse(text: str) -> Any:
    """Parse YAML into what JSON can hold, dates and the like as they are.

    Raises
    ------
    YAMLError
        Whatever is wrong with it: PyYAML itself lets other errors through.
    """
    try:
        value = yaml.load(text, _Loader)
        json.dumps(value, default=str)  # which no structure that holds itself survives
    except RecursionError:
        raise _unusable("it is nested too deeply") from None
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as error:
        raise _unusable(str(error)) from None
    return value


def _unusable(reason: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=reason)


def fault(error: yaml.YAMLError) -> str:
    """Say where a file is not YAML and why, to be put after the file's name."""
    mark = getattr(error, "problem_mark", None)
    line = f", line {mark.line + 1}" if mark else ""
    return f"{line} is not valid YAML: {_reason(error)}"


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but a key must be text and may stand only once."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if key.tag not in (_STRING, _MERGE):
                name = show(key.value) if isinstance(key, yaml.ScalarNode) else "of several parts"
                raise _problem(f"a key {name} must be text; put it in quotes", key)
            if key.value in seen:
                raise _problem(f"key {show(key.value)} stands twice", key)
            seen.add(key.value)
        return node


def _problem(reason: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=reason, problem_mark=node.start_mark)


def _read_one(path: Path, context: str) -> Document:
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read config {path}{context}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}{context} is not a text file; write it in UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{context}{fault(error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}{context} must hold 'key: value' lines, not {show(document)}")
    return document


def _parse_value(key: str, written: str) -> Any:
    try:
        return parse(written)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"--set {key}: {show(written)} is not valid YAML: {_reason(error)}"
        ) from None


def _reason(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", "it cannot be parsed")
    return str(problem)


def _anchor(document: Document, folder: Path) -> None:
    """Make the relative paths of a document relative to `folder`, in place."""
    for section, key in _PATH_KEYS:
        values = document.get(section)
        if isinstance(values, dict) and isinstance(values.get(key), str):
            values[key] = _relative(values[key], folder)
    mobility = document.get("mobility")
    scenario = mobility.get("scenario") if isinstance(mobility, dict) else None
    if isinstance(mobility, dict) and isinstance(scenario, str) and _is_path(scenario):
        path = _relative(scenario, folder)
        # "./grid" is a folder; a bare "grid" would be the name of a scenario.
        mobility["scenario"] = path if _is_path(path) else os.path.join(".", path)


def _relative(path: str, folder: Path) -> str:
    return os.path.normpath(folder / os.path.expanduser(path))


def _is_path(scenario: str) -> bool:
    return scenario.endswith(".sumocfg") or os.sep in scenario

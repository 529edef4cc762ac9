"""What the sections of the configuration have in common: ranges, and strictness."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# Beyond these no quantity means anything, and sums of seconds and bytes would overflow.
LEAST, MOST = 1e-12, 1e12
Positive = Annotated[float, Field(ge=LEAST, le=MOST)]
Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0, le=MOST)]
Coordinate = Annotated[float, Field(ge=-MOST, le=MOST)]
Speed = Annotated[float, Field(ge=1e-6, le=1e6)]


class Section(BaseModel):
    """A frozen section that refuses keys it does not know."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


def filled(given: Any, presets: Mapping[str, Mapping[str, Any]], default: str) -> Any:
    """Lay a section over the preset that it names; what is no section is left to the schema."""
    if not isinstance(given, dict):
        return given
    preset = given.get("preset", default)
    return {**presets.get(preset, {}), **given} if isinstance(preset, str) else given

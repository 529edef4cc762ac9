"""A count of the trainings that really happen in this process."""

from typing import Any

import pytest

from testbed.learning.classification import Classification


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Partitions of the clients that trained, in order; warm-ups are left out."""
    done: list[int] = []
    really = Classification.train

    def train(self: Classification, part: int, *rest: Any) -> Any:
        if self.recipe.lr:  # a warm-up stands still
            done.append(part)
        return really(self, part, *rest)

    monkeypatch.setattr(Classification, "train", train)
    return done

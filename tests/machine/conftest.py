"""What several tests of transitions begin with."""

from __future__ import annotations

import pytest
from tests.engine.conftest import Bench


@pytest.fixture
def bench() -> Bench:
    """A node with four GPUs."""
    made = Bench()
    made.node("a", gpus=4)
    return made

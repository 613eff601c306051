"""The text of reasons."""

from __future__ import annotations

import pytest

from headgate.protocol.reasons import NoFreeResource


@pytest.mark.parametrize(
    ("resource", "needed", "most_free", "amounts"),
    [
        ("fpga", 250, 0, "0.25 of fpga needed on one node, at most 0 free"),
        (
            "fpga",
            2_000_000_000,
            1_234_567,
            "2000000 of fpga needed on one node, at most 1234.567 free",
        ),
        ("memory", 3 << 30, 1 << 20, "3 GiB of memory needed on one node, at most 1 MiB free"),
    ],
)
def test_lacking_resource_is_reported_with_exact_amounts(
    resource: str, needed: int, most_free: int, amounts: str
) -> None:
    reason = NoFreeResource(resource=resource, needed=needed, most_free=most_free)
    assert str(reason) == f"NoFreeResource({amounts}; starts when running tasks end)"

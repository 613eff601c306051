"""The parameters by which a policy uses a placer."""

from __future__ import annotations

from headgate.ports.policy import Parameter

PLACES = (
    "first-fit",
    "links",
    "best-fit-subtree",
    "closed-minimum",
    "sequential",
    "block",
    "cyclic",
    "block-cyclic",
    "random",
    "round-robin",
    "pick-kx",
    "resource-pick-kx",
    "swrr",
    "least-cost",
)
"""The placers: the policy's own choice, without regard to a topology; by links; and others."""

PLACE_NAMES = {**dict(zip(PLACES, PLACES, strict=True)), "headgate": "links"}
"""Names of placers that files may have, former ones too, and the names that they have now."""

PLACE = (
    Parameter(
        name="place",
        default="first-fit",
        unit="1",
        meaning="where gangs and tasks of several GPUs are placed; first-fit is without regard to "
        "the topology, links where they end soonest, else as tightly as possible; balancers "
        "(random to least-cost) place single tasks, too",
        choices=PLACES,
        formerly=PLACE_NAMES,
    ),
    Parameter(
        name="reserve",
        default="whole",
        unit="1",
        meaning="with closed-minimum: whether the whole closed set of a job is kept from other "
        "placed jobs, or what its tasks need",
        choices=("whole", "needed"),
    ),
    Parameter(
        name="otherwise",
        default="spread",
        unit="1",
        meaning="with closed-minimum, for a job without an idle closed set of least diameter: "
        "spread over what is free, enlarge the closed set, or wait for one",
        choices=("spread", "enlarge", "wait"),
    ),
    Parameter(
        name="sizes",
        default="round-up",
        unit="1",
        meaning="with best-fit-subtree, for a number of GPUs that is no power of two: look for "
        "the next one, or refuse the job",
        choices=("round-up", "refuse"),
    ),
    Parameter(
        name="block_size",
        default=2.0,
        unit="tasks",
        meaning="with block-cyclic: tasks that each part of the machine gets in turn",
        least=1.0,
    ),
)
"""The parameters of every policy that places gangs."""

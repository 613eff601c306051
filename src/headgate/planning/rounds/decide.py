"""One round of a policy, in every world."""

from __future__ import annotations

from dataclasses import replace

from headgate.base.rng import Random, stream
from headgate.planning.rounds.hidden import without_kept
from headgate.planning.rounds.patience import with_patience
from headgate.planning.rounds.reclaim import with_reclaimed
from headgate.planning.rounds.surplus import with_surplus
from headgate.planning.rounds.take_back import with_guarantees
from headgate.planning.rounds.widths import with_widths
from headgate.planning.scaling.scaler import with_scaling
from headgate.planning.units.settled import next_settled_at
from headgate.ports import Policy, capabilities
from headgate.protocol import Decide, Plan
from headgate.state import Snapshot
from headgate.state.elastic import needs_rounds


def decide(policy: Policy, seed: int, command: Decide, snapshot: Snapshot) -> Plan:
    """Run a policy for one `Decide`, with the random stream that belongs to it; then scaling.

    Some clusters have rounds without a waiting task (`needs_rounds`), in which no policy decides.
    """
    plan = decided(policy, snapshot, stream(seed, "decide", command.seen))
    return with_scaling(snapshot, plan)


def decided(policy: Policy, snapshot: Snapshot, rng: Random) -> Plan:
    """Return the plan of a round of a policy, for what waits; then of what elastic jobs get beside.

    With what queues take back of those that borrow of them.
    """

    def decide_for(seen: Snapshot) -> Plan:
        if not seen.waiting_tasks and needs_rounds(snapshot):
            return Plan()
        return with_guarantees(policy, seen, lambda shown: _with_slots(policy, shown, rng))

    equal = capabilities(policy).equal_surplus
    return with_surplus(snapshot, lambda seen: with_widths(seen, decide_for), equal=equal)


def _with_slots(policy: Policy, snapshot: Snapshot, rng: Random) -> Plan:
    """Return the plan of a policy, with the slots that are reclaimed after it.

    Neither uses places that are kept for a hardened unit. Slots on GPUs are not reclaimed where the
    policy itself stops runs: in this round, or whenever its order requires (`preempts_by_order`).
    """
    plan = with_patience(policy, snapshot, rng)
    plan = replace(plan, again_at=next_settled_at(snapshot, plan))
    by_order = capabilities(policy).preempts_by_order
    seen = snapshot if plan.hardened is None else without_kept(snapshot, plan.hardened)
    return with_reclaimed(seen, plan, gpus=not by_order)

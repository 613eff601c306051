"""What it costs to run a task on a node: the seconds of reading, as the flow paper prices them."""

from __future__ import annotations

from headgate.model import Locality
from headgate.state import Snapshot


def read_s(snapshot: Snapshot, task: int, node: int) -> float:
    """Return the expected seconds of reading a task's shards on a node, without contention.

    Flow paper, section 3 (without its penalty coefficients): each shard at the bandwidth of its
    nearest replica; one without a replica as from another rack.
    """
    bandwidth = snapshot.bandwidth
    bytes_per_s = {
        Locality.NODE: bandwidth.disk_bytes_per_s,
        Locality.RACK: bandwidth.rack_bytes_per_s,
        Locality.CLUSTER: bandwidth.cluster_bytes_per_s,
    }
    return sum(
        r.shard.size_bytes / bytes_per_s[r.locality] for r in snapshot.planned_reads(task, node)
    )

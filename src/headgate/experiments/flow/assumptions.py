"""The assumptions of the simulation where the flow paper leaves details open, as text."""

from __future__ import annotations

ASSUMPTIONS = """\
The test bed is the published one: 15 nodes with two GPUs of 10 GB each, in four racks; node links
of 1 Gbit/s; an uplink per rack of 1 Gbit/s (constrained) or 10 Gbit/s (unconstrained) into a core
that never blocks. Transfers share disks and links max-min fairly.

The jobs are the published ones: forms, shards, sizes and counts. A task reads its shards one
after the other, each from the nearest replica, then computes for a time in proportion to their
bytes, with a weight per kind of work (assumed): 4 for prime tests, 10 for the detection of
objects in images, 1 for all others.

Left open by the paper and fixed here: a block of a square matrix product leaves 100 MB, one of
thin blocks 60 MB, any other task 10 MB; an image has 100 kB; reduces, merges and updates run on
CPU slots and take the time of their reading; every shard has three replicas, on random nodes,
drawn for each seed.

The paper publishes no values of its penalties and delay thresholds: those used here are the
policies' defaults. As in the paper there is no hysteresis: gsp and fsp run with slack 0.
Decisions take no time in the simulation.

Fairness compares a job's time, first start to last end, with its ideal: its time alone under the
policy that is fastest for it, of all that were run, with its data at the same places, either on at
most its share of the GPUs (called share; section 5.2 of the paper) or on the whole cluster (called
alone; its section 5.3.1). A job may be faster than its ideal on the share, when it gets more GPUs
than that.
"""

"""Where the parts are put together: the policies that there are, the controller's process."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.decision import PolicyInfo
from headgate.policies import fifo, flow

POLICIES: Mapping[str, PolicyInfo] = {info.name: info for info in (fifo.INFO, flow.INFO)}
"""Every policy by its name, in the order in which they are listed."""

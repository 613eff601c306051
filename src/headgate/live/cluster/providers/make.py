"""The provider that a scaling file names."""

from __future__ import annotations

from pathlib import Path

from headgate.live.cluster.providers import Provider
from headgate.live.cluster.providers.command import CommandHook
from headgate.live.cluster.providers.local_ray import LocalRay
from headgate.spec.live_scaling import CommandProvider, LocalRayProvider


def make_provider(settings: LocalRayProvider | CommandProvider, state: Path) -> Provider:
    """Return the provider of these settings, for the cluster of a state directory."""
    if isinstance(settings, CommandProvider):
        return CommandHook(settings.argv, timeout_s=settings.timeout_s)
    return LocalRay(state, rack=settings.rack)

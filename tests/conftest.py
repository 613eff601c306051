"""What every test shares: how hypothesis looks for counter-examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same examples in every run, and no clock: a slow machine makes no test fail. A failure prints
# the blob that reproduces it.
settings.register_profile(
    "house",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")

"""Parts that policies are composed of: entitlements, fit, costs, order, CPU tasks."""

from headgate.base import not_built

try:
    import headgate.planning._native  # noqa: F401  # before the modules that import it
except ImportError as missing:
    raise not_built("headgate.planning", missing) from missing

"""The simulated world: virtual time, a fluid network, faults."""

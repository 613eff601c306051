"""The policies, one package per family; none imports another."""

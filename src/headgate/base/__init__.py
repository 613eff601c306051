"""The lowest layer: errors, units, columns, seeded random streams."""


def not_built(package: str, missing: ImportError) -> ImportError:
    """Return the ImportError for a package whose compiled part is missing."""
    return ImportError(
        f"{package} cannot load its compiled part ({missing}); build it: `make install` in a"
        " checkout, or `pip install .` with a C++20 compiler such as g++"
    )


try:
    import headgate.base._native  # noqa: F401  # before any module that needs it
except ImportError as missing:
    raise not_built("headgate.base", missing) from missing

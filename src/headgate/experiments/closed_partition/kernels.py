"""The NPB kernels of the published runs: their mean times, their work, and their split.

Only the published means under sequential placement are used, and the operation counts by which
NPB defines its classes. Class A on 4 processes runs in one node and sends nothing through the
network, so its mean gives the speed of a core. What a larger run takes beyond its operations at
that speed is the time that does not scale: an upper bound of its communication.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.model import Pattern

CORES = 12
"""Cores of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """An NPB class on a number of processes: one of the published sets of jobs."""

    npb_class: str
    processes: int

    @property
    def name(self) -> str:
        """The name in tables, such as C/64."""
        return f"{self.npb_class}/{self.processes}"

    @property
    def nodes(self) -> int:
        """The nodes of a job, which shares none of them."""
        return -(-self.processes // CORES)


SIZES = tuple(Size(npb_class=c, processes=p) for c, p in (("A", 4), ("B", 16), ("C", 64)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel: by size, its published mean in seconds under sequential placement, and its work.

    `operations` are in 10^9 (keys sorted for IS, pairs of random numbers for EP); only ratios
    within a kernel matter. `pattern` is that of most of its traffic.
    """

    name: str
    pattern: Pattern
    mean_s: tuple[float, float, float]
    operations: tuple[float, float, float]

    def compute_s(self, size: Size) -> float:
        """Return the time of its operations at the speed of class A, in seconds.

        Never more than the published mean.
        """
        index = SIZES.index(size)
        least = SIZES[0]
        scaled = self.operations[index] / self.operations[0] * least.processes / size.processes
        return min(self.mean_s[0] * scaled, self.mean_s[index])

    def published_s(self, size: Size) -> float:
        """Return the published mean under sequential placement, in seconds."""
        return self.mean_s[SIZES.index(size)]

    def rest_s(self, size: Size) -> float:
        """Return the part of the published mean that does not scale, in seconds."""
        return self.published_s(size) - self.compute_s(size)


def _kernel(
    name: str,
    pattern: Pattern,
    mean_s: tuple[float, float, float],
    operations: tuple[float, float, float],
) -> Kernel:
    return Kernel(name=name, pattern=pattern, mean_s=mean_s, operations=operations)


KERNELS = (
    _kernel("EP", Pattern.TREE, (2.332, 2.458, 2.452), (0.268, 1.074, 4.295)),
    _kernel("IS", Pattern.ALL_TO_ALL, (0.274, 0.440, 1.000), (0.084, 0.336, 1.342)),
    _kernel("FT", Pattern.ALL_TO_ALL, (1.534, 7.354, 13.300), (7.136, 92.054, 396.388)),
    _kernel("CG", Pattern.TREE, (0.514, 8.942, 9.218), (1.496, 54.709, 143.347)),
    _kernel("MG", Pattern.NEIGHBOURS, (0.680, 1.242, 2.530), (3.892, 19.462, 155.693)),
    _kernel("LU", Pattern.NEIGHBOURS, (15.424, 20.956, 28.362), (119.3, 498.8, 2039.0)),
    _kernel("BT", Pattern.NEIGHBOURS, (20.284, 24.704, 25.858), (168.3, 702.2, 2866.3)),
    _kernel("SP", Pattern.NEIGHBOURS, (18.916, 32.408, 31.888), (85.0, 355.0, 1450.1)),
)


def published_mean_s(size: Size) -> float:
    """Return the published mean over all kernels under sequential placement, in seconds."""
    return sum(kernel.published_s(size) for kernel in KERNELS) / len(KERNELS)

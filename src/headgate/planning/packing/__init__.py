"""Packing of pods that share GPUs: which node, and which of its GPUs."""

from headgate.planning.packing.fragments import Fgd, fragment_milli, usable_milli
from headgate.planning.packing.future import Future, Learnt
from headgate.planning.packing.mix import Mix, typical
from headgate.planning.packing.packer import Packer, Place, choose
from headgate.planning.packing.room import WHOLE, FreeNodes, PodDemand, fits
from headgate.planning.packing.scorers import (
    BestFit,
    DotProduct,
    GpuClustering,
    GpuPacking,
    Options,
    Scorer,
    Uniform,
)

__all__ = [
    "WHOLE",
    "BestFit",
    "DotProduct",
    "Fgd",
    "FreeNodes",
    "Future",
    "GpuClustering",
    "GpuPacking",
    "Learnt",
    "Mix",
    "Options",
    "Packer",
    "Place",
    "PodDemand",
    "Scorer",
    "Uniform",
    "choose",
    "fits",
    "fragment_milli",
    "typical",
    "usable_milli",
]

"""Runs of policies on recorded pods, and what they reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headgate.base.errors import Problem, SpecError, nearest
from headgate.base.rng import stream
from headgate.experiments.packing.reading import read
from headgate.experiments.packing.workload import ARRIVED, Workload
from headgate.planning.packing import (
    BestFit,
    DotProduct,
    Fgd,
    GpuClustering,
    GpuPacking,
    Mix,
    Packer,
    Uniform,
    fragment_milli,
    typical,
)

Progress = Callable[[float], None]
"""Called with the arrived load, relative to all GPUs."""

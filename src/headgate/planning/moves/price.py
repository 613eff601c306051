"""What a move costs, and whether moves pay for what they make room for: in GPU seconds."""

from __future__ import annotations

from dataclasses import dataclass

RESUME_S = 30.0
"""Between the end of a run and the first new work of the next, besides reading its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePrice:
    """What moves cost besides work that is lost.

    `state_bytes` of a task are read again at `bytes_per_s`, then it needs `resume_s` to proceed.
    """

    state_bytes: float = 0.0
    bytes_per_s: float = 1e9
    resume_s: float = RESUME_S

    def move_cost_s(self, gpus: float, lost_s: float) -> float:
        """Return the GPU seconds that a move takes from a run on `gpus` GPUs.

        `lost_s` is its work since the last checkpoint, 0 if it saves its progress on notice.
        """
        return gpus * (lost_s + self.state_bytes / self.bytes_per_s + self.resume_s)


def pays(cost_gpu_s: float, *, wait_s: float, gpus: int) -> bool:
    """Return whether moves cost less than the wait that they save a need of `gpus` GPUs."""
    return cost_gpu_s < wait_s * gpus

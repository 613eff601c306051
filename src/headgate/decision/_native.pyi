"""The compiled part of decisions; its sources are in `native/`."""

from headgate.decision.shares import Floats, Ints

class Deal:
    """The deal that `headgate.decision.shares` tells of, to jobs in order of arrival."""

    def __init__(
        self, queue: Ints, user: Ints, priority: Ints, weight: Floats, max_gpus: Ints
    ) -> None:
        """Sort jobs; `queue` is a row of `weight` and `max_gpus`. O(jobs x log).

        Raises ValueError where lengths or rows do not match, as all methods do.
        """

    def alike(self, held: Ints, room: Ints, gpus: int) -> Ints:
        """Return how many of `gpus` alike each job wins, on top of what it holds, up to `room`.

        O(jobs x log(GPUs held)).
        """

    def by_class(self, held: Ints, tasks: Ints, gpus: Ints, won: Ints) -> Ints:
        """Return how many GPUs of several classes each job wins, `won` among them.

        `tasks`, `[jobs, classes]`, are those to serve, `gpus`, `[classes]`, those to deal. O(a deal
        of GPUs alike) where all tasks fit all GPUs, else O(classes x log(GPUs)) times that.
        """

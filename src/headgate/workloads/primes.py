"""Prime test: which integers of the data are prime, and how often each of them occurs.

`find` is run for each shard, `merge` once over all results. Shards are raw integers (see
`counts.integers_of`), results are tables of the primes alone (see `counts`).
"""

from __future__ import annotations

from typing import Any

from headgate.workloads.counts import Counts, Integers, integers_of, write_merged, write_total
from headgate.workloads.records import wrong
from headgate.workloads.task import (
    TaskContext,
    array_module,
    from_numpy,
    to_numpy,
    unique_counts,
)

LARGEST = 3_037_000_499  # the square of a remainder below it fits in 63 bits

_SMALL_PRIMES = (
    2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41,
    43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
)  # fmt: skip
_TRIAL_IS_EXACT_BELOW = 101**2
# The least composite that passes Miller-Rabin with all of these is 3,215,031,751 (Jaeschke,
# Mathematics of Computation 61, 1993), above LARGEST: the test decides, it does not guess.
_BASES = (2, 3, 5, 7)
_BITS = 32


def find(task: TaskContext) -> None:
    """Collect the primes among the integers of the task's shards; SpecError above `LARGEST`."""
    module = array_module(task)

    def found(piece: Integers) -> Counts:
        if piece.size and piece.max() > LARGEST:
            shards = ", ".join(map(str, task.shards))
            hint = f"integers up to {LARGEST} can be tested"
            raise wrong(shards, f"{piece.max()} is too large for the prime test", hint)
        numbers = from_numpy(module, piece)
        values, counts = unique_counts(module, numbers[is_prime(module, numbers)])
        return Counts(to_numpy(values), to_numpy(counts))

    write_total(task, map(found, integers_of(task)), "primes")


def merge(task: TaskContext) -> None:
    """Add up the tables of all earlier tasks."""
    write_merged(task, "primes")


def is_prime(module: Any, numbers: Any) -> Any:
    """Return whether each int64 up to `LARGEST` is prime: trial division, then Miller-Rabin."""
    prime = numbers > 1
    for divisor in _SMALL_PRIMES:
        prime &= (numbers % divisor != 0) | (numbers == divisor)
    open_question = prime & (numbers >= _TRIAL_IS_EXACT_BELOW)
    prime[open_question] = _miller_rabin(module, numbers[open_question])
    return prime


def _miller_rabin(module: Any, odd: Any) -> Any:
    """Return whether odd integers above the bases are prime: odd - 1 = rest * 2**twos."""
    rest, twos = odd - 1, module.zeros_like(odd)
    for _ in range(_BITS):
        even = rest % 2 == 0
        twos = module.where(even, twos + 1, twos)
        rest = module.where(even, rest // 2, rest)
    prime = odd > 1
    for base in _BASES:
        power = _power(module, base, rest, odd)
        passed = (power == 1) | (power == odd - 1)
        for squarings in range(1, _BITS):
            power = power * power % odd
            passed |= (power == odd - 1) & (twos > squarings)
        prime &= passed
    return prime


def _power(module: Any, base: int, exponents: Any, modulus: Any) -> Any:
    """Return base**exponents modulo modulus, element by element."""
    power = module.ones_like(modulus)
    square = module.zeros_like(modulus) + base
    for _ in range(_BITS):
        power = module.where(exponents % 2 == 1, power * square % modulus, power)
        square = square * square % modulus
        exponents = exponents // 2
    return power

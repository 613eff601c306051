"""multiprocessing.Pool on Ray: one process for each CPU, on whichever node it is.

But for its first import the program is the one for Python's own Pool.
"""

from ray.util.multiprocessing import Pool


def count_primes(first: int) -> int:
    """Count the primes among 1,000 numbers."""
    numbers = range(max(2, first), first + 1_000)
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in numbers)


with Pool() as pool:
    counts = pool.map(count_primes, range(0, 50_000, 1_000), chunksize=5)
    powers = pool.starmap(pow, [(2, 10), (3, 5)])
    pool.close()
    pool.join()
print(f"{sum(counts)} primes below 50,000; powers {powers}")

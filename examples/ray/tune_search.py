"""Ray Tune: a search over two parameters, one GPU per trial, that stops bad trials early.

Usage: tune_search.py DIRECTORY (for the results, on a file system that all nodes share)
"""

import sys

from ray import tune
from ray.tune.schedulers import ASHAScheduler


def train(config: dict[str, float]) -> None:
    """Minimize (x - 3)^2 by gradient descent with momentum."""
    x, speed = 0.0, 0.0
    for _ in range(20):
        speed = config["momentum"] * speed - config["rate"] * 2 * (x - 3)
        x += speed
        tune.report({"error": (x - 3) ** 2})


tuner = tune.Tuner(
    tune.with_resources(train, {"cpu": 1, "gpu": 1}),
    param_space={
        "rate": tune.grid_search([0.01, 0.1, 0.3, 1.1]),
        "momentum": tune.grid_search([0.0, 0.5]),
    },
    tune_config=tune.TuneConfig(metric="error", mode="min", scheduler=ASHAScheduler(max_t=20)),
    run_config=tune.RunConfig(name="search", storage_path=sys.argv[1], verbose=0),
)
results = tuner.fit()
best = results.get_best_result()
print(f"{len(results)} trials, {results.num_errors} errors")
print(f"best: rate {best.config['rate']}, momentum {best.config['momentum']}")

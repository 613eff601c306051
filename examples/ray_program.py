"""A plain Ray program: a search over learning rates, each trial a task on one GPU.

Nothing here knows of Headgate. It runs anywhere that Ray runs; in a grant, Ray has the granted GPUs.
"""

import os
import time

import ray

RATES = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.1]


@ray.remote(num_gpus=1)
def train(rate: float) -> tuple[float, float, str]:
    """Minimize (x - 3)^2; return the rate, the error, and the GPU of this trial."""
    x = 0.0
    for _ in range(20):
        x -= rate * 2 * (x - 3)
        time.sleep(0.1)  # a real trial computes on its GPU here
    node = ray.util.get_node_ip_address()
    return rate, (x - 3) ** 2, f"GPU {os.environ['CUDA_VISIBLE_DEVICES']} of {node}"


ray.init()
print(f"{ray.cluster_resources().get('GPU', 0):.0f} GPUs for {len(RATES)} trials", flush=True)
waiting = [train.remote(rate) for rate in RATES]
found = []
while waiting:
    [ready], waiting = ray.wait(waiting)
    found.append(ray.get(ready))
    rate, error, gpu = found[-1]
    print(f"rate {rate:<4}  error {error:.2e}  on {gpu}", flush=True)
print(f"best rate: {min(found, key=lambda trial: trial[1])[0]}")

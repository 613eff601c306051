"""A plain Ray program: a search over learning rates, each trial a task on one GPU.

It is unmodified: on a laptop it uses the GPUs there, in a grant of Headgate exactly the granted.
"""

import os
import time

import ray

RATES = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.1]


@ray.remote(num_gpus=1)
def train(rate: float) -> tuple[float, float, str, str]:
    """Minimize (x - 3)^2; return the rate, the error, and the GPU and node of this trial."""
    x = 0.0
    for _ in range(20):
        x -= rate * 2 * (x - 3)
        time.sleep(0.1)  # a real trial computes on its GPU here
    node = ray.get_runtime_context().get_node_id()
    return rate, (x - 3) ** 2, os.environ["CUDA_VISIBLE_DEVICES"], node


ray.init(log_to_driver=False, logging_level="ERROR")
names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
print(f"{len(RATES)} trials on {ray.cluster_resources().get('GPU', 0):.0f} GPUs", flush=True)
waiting = [train.remote(rate) for rate in RATES]
found = []
while waiting:
    [ready], waiting = ray.wait(waiting)
    rate, error, gpu, node = ray.get(ready)
    found.append((error, rate))
    print(f"rate {rate:<4}  error {error:8.1e}  GPU {gpu} of {names[node]}", flush=True)
print(f"best rate: {min(found)[1]}")

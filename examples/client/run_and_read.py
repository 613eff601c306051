"""Run a command, wait for its end, and read its output and its result."""

import headgate

with headgate.Client() as client:
    job = client.submit({"name": "hello", "run": "echo hello; date > {output}"})
    view = client.wait(job)
    print(job, view["state"], f"after {view['wait_s'] + view['run_s']:.1f} s")
    print("".join(client.logs(job)), end="")
    for ordinal, content in client.results(job):
        print(ordinal, content.decode().strip())

"""Show the jobs of each state, the free GPUs, and why a job waits."""

import headgate

with headgate.Client() as client:
    jobs = client.table("jobs")
    print(jobs.group_by("state").aggregate([("id", "count"), ("gpus_held", "sum")]).to_pylist())
    print(sum(client.table("nodes")["gpus_free"].to_pylist()), "GPUs are free")
    for job in jobs.to_pylist():
        if job["reason"] is not None:
            print(job["id"], "waits:", client.why(job["id"])["reason"]["text"])

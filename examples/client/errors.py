"""Every problem of a job file arrives as one error; so do jobs that can never run."""

import headgate

for job in (
    {"nam": "x", "run": "true", "priority": "high"},
    {"run": "x", "resources": {"gpus": 99}},
):
    try:
        with headgate.Client() as client:
            client.submit(job)
    except headgate.HeadgateError as error:
        print(error.code)
        for problem in error.problems:
            print(" ", problem.path, problem.problem, problem.hint)

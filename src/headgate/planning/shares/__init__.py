"""Who gets how much: fair shares, what jobs hold and are owed, orders of jobs, owners."""

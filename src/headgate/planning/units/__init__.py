"""Units of work: tasks that start together, what they demand and what they read."""

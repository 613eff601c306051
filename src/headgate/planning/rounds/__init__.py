"""A round: what follows a policy's decision, in all worlds alike."""

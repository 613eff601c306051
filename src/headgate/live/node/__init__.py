"""What a node has: shards, results, files of runs, caches, and reports of its state."""

"""What all experiments have in common: runs in several processes, claims, and one report."""

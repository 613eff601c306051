"""`headgate reproduce`: published experiments, simulated and on test beds."""

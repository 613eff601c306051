"""Where and when units start: what is free, reserved and claimed, and why the rest waits."""

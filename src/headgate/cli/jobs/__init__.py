"""Jobs: submitted, shown, explained, stopped and moved."""

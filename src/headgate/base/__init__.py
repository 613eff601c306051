"""What everything stands on: errors, units, columns, seeded random streams."""

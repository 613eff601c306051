"""The laws that anyone's policy, solver or world inherits as a test suite."""

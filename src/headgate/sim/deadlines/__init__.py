"""Elastic training with deadlines in virtual time: recorded jobs, rules, figures."""

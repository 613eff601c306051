"""What will happen, and why: explanations, what-if copies, forecasts, and the outlook of a job."""

"""Reports: self-contained pages and their charts, as text."""

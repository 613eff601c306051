"""The policies, one family a package; they do not know each other."""

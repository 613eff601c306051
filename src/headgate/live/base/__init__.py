"""What all parts of the live world use: accounts, files, messages, limits and supervision."""

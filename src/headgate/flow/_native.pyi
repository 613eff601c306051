"""The compiled part of the flow core; its sources are in `native/`."""

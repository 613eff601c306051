"""The controller: the engine on its journal, and the live world around it."""

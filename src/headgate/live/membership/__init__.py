"""The nodes of the cluster as the controller knows them: reports, use and bandwidth."""

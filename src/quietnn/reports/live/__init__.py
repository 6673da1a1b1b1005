"""The page while its run goes on: what changed in the folders, and a server on this machine alone that says so."""

"""eigenpact."""

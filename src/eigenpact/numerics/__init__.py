"""Numbers and nothing else: linear algebra, Krylov spaces, rows, kernels, certificates, metrics."""

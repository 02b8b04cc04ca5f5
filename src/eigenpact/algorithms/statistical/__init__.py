"""One-shot merges and multi-round eigenvector methods for sites whose rows come from one distribution."""

"""Robust principal components: rows that are low rank plus sparse gross errors, without pooling them."""

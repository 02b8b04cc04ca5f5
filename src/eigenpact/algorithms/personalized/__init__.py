"""Shared and particular components: one basis that all sites agree on, and one of its own at every site."""

"""Nodes of a graph that talk to their neighbours only.

No node collects what others hold.  Someone conducts: says which step comes next and reads the values that nodes agree on, such
as the largest residual, to end the run.  In one process that is the caller, under MPI rank 0; it sees sizes and agreed values.
"""

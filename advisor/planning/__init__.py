"""Which jobs share which GPU, how, and in what order.

`advisor.planning.ranking.ranked` ranks the plans for jobs on one GPU. Whoever spreads jobs over
several asks `advisor.planning.solver.one_gpu.OneGpu(jobs, question).best(chosen)` for the best plan
of each set that he thinks of, with its forecast and its cost: each set is worked out once.
"""

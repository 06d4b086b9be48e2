"""Which jobs share which GPU, how, and in what order.

`advisor.planning.ranking.ranked` ranks the plans for jobs on one GPU. Whoever spreads jobs over
several asks `advisor.planning.solver.one_gpu.OneGpu(jobs, question).best(chosen)` for the best plan
of each set that he thinks of, with its forecast and its cost: each set is worked out once. What any
set costs roughly, without a forecast, `advisor.planning.solver.solve.Solver` says, for up to 8
different jobs; for up to 3 it may ask the predictor itself, and then says what a forecast will as
far as MIG instances do not slow each other.
"""

"""Which jobs share which GPU, how, and in what order.

`advisor.plan.ranking.ranked` ranks the plans for jobs on one GPU. Whoever spreads jobs over
several GPUs asks `advisor.plan.search.one_gpu_search.OneGpu(jobs, question).best(chosen)` for the
best plan of each set, with its forecast and its cost: each set is worked out once. What any set
costs roughly, without a forecast, `advisor.plan.search.proposals.Solver` says, for up to 8
different jobs; for up to 3 it may ask the predictor itself, and then says what a forecast will as
far as MIG instances do not slow each other.
"""

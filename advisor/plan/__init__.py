"""Which jobs share which GPU, how, and in what order.

`ranking.ranked` ranks the plans for jobs on one GPU. `many_jobs.plan_fleet` plans more jobs than
one search can hold, or several GPUs, and asks `search.one_gpu_search.OneGpuSolver` for the best
plan of each set of jobs. `search.proposals.Solver` estimates what any set costs: of up to 3 jobs it
may ask the predictor itself, and is then exact as far as MIG instances do not slow each other.
"""

"""The best ways for a few jobs to share one GPU, among all that there are."""

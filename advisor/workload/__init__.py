"""Jobs, profiles and their files; jobs that arrive over time."""

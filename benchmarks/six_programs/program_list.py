"""The six programs, the mixes of them that a seed draws, and the ways to run a mix."""

from benchmarks.programs.program_list import Program, draw_mixes

# Examples of a step; a user knows them.
BATCHES = {
    "detector": 8,
    "segmenter": 8,
    "speech": 16,
    "state_space": 16,
    "video_cnn": 16,
    "world_model": 16,
}
_DRAWN = draw_mixes(sorted(BATCHES), count=18, largest=4)
MIXES = list({frozenset(mix): mix for mix in reversed(_DRAWN)}.values())[::-1][:12]  # no mix twice


def six_programs(*, tiny: bool = False) -> dict[str, Program]:
    """Return the programs by name; `tiny` ones train on a CPU."""
    return {
        name: Program(
            name=name,
            kind="six",
            repository="",
            commit="",
            folder=".",
            pace=r"^step (\d+), ",
            command=f"python3 benchmarks/six_programs/scripts/{name}.py{' --tiny' if tiny else ''}",
        )
        for name in BATCHES
    }

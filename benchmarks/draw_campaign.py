"""Writes a campaign's runs as files for ``python -m advisor.collocation``, one file a GPU.

    python benchmarks/draw_campaign.py benchmarks/campaign/plan.toml --shards 4

The runs of the first two campaigns were fixed so, before `advisor campaign` could share one queue
among several GPUs.
"""

import argparse
import json
from pathlib import Path

from advisor.measure.campaign.campaign_file import read_campaign
from advisor.measure.campaign.draw import drawn_plans
from advisor.measure.campaign.drawn_list import plan_entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder [the plan's]")
    asked = parser.parse_args()
    campaign = read_campaign(asked.plan)
    entries = [plan_entry(plan) for plan in drawn_plans(campaign)]
    out = asked.out or asked.plan.parent
    out.mkdir(parents=True, exist_ok=True)
    for shard in range(asked.shards):
        document = {"schema": 1, "gpu": campaign.gpu, "plans": entries[shard :: asked.shards]}
        (out / f"plans-{shard}.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(entries)} runs in {asked.shards} files")


if __name__ == "__main__":
    main()

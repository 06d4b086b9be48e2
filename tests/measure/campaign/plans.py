"""Plan files for tests."""

SMALL = ["mlp-toy-bs32", "mlp-toy-bs64", "mlp-toy-bs128"]
PLAN = """
gpu = "cpu"
seed = 7
small = ["mlp-toy-bs32", "mlp-toy-bs64", "mlp-toy-bs128"]
solo_every = 2
repeats = 1

[degrees.2]
naive = {same = 1, mixed = 2}

[timing]
settle_s = 0.1
window_s = 0.1
"""
OF_A_GPU = """
gpu = "h200-141gb"
seed = 11
small = ["resnet50-imagenet64-bs128", "dlrm-1gb-bs128", "gpt2-small-finetune-bs2"]
large = ["dlrm-29gb-bs128"]
limits = [14, 43, 71]
repeats = 5

[equal_limits]
2 = [43, 50]
4 = [28]

[degrees.2]
naive = {same = 3, mixed = 4}
mps = {mixed = 4}
equal = {mixed = 5}
unequal = {mixed = 6}

[degrees.4]
equal = {same = 2}
"""


def written(folder, text, name="plan.toml"):
    """The plan `text` as a file in `folder`."""
    path = folder / name
    path.write_text(text)
    return path

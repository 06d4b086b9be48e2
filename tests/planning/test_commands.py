from advisor.planning.commands import commands
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.planning.stand_in import H200

JOBS = [
    Job(synthetic.profile("resnet50-imagenet64-bs128")),
    Job(synthetic.profile("bert-base-finetune-bs16-loader2")),
]


def script(sharing):
    return "\n".join(commands(JOBS, parse_sharing(sharing), H200)) + "\n"


def test_serial_runs_one_job_after_the_other_each_pinned():
    assert script("serial") == (
        "export CUDA_VISIBLE_DEVICES=0\n"
        "taskset -c 0 <your command for resnet50-imagenet64-bs128>\n"
        "taskset -c 1-3 <your command for bert-base-finetune-bs16-loader2>\n"
    )


def test_naive_starts_all_and_waits():
    assert script("naive") == (
        "export CUDA_VISIBLE_DEVICES=0\n"
        "taskset -c 0 <your command for resnet50-imagenet64-bs128> &\n"
        "taskset -c 1-3 <your command for bert-base-finetune-bs16-loader2> &\n"
        "wait\n"
    )


def test_mps_starts_a_daemon_of_its_own_and_stops_it():
    assert script("mps") == (
        "export CUDA_VISIBLE_DEVICES=0\n"
        "export CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)\n"
        "nvidia-cuda-mps-control -d\n"
        "taskset -c 0 <your command for resnet50-imagenet64-bs128> &\n"
        "taskset -c 1-3 <your command for bert-base-finetune-bs16-loader2> &\n"
        "wait\n"
        "echo quit | nvidia-cuda-mps-control\n"
    )


def test_a_limit_is_set_for_its_own_job_alone():
    lines = script("mps=43,57.5").splitlines()
    assert lines[3] == (
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=43 "
        "taskset -c 0 <your command for resnet50-imagenet64-bs128> &"
    )
    assert lines[4].startswith("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=57.5 taskset -c 1-3 ")


def test_mig_is_cut_at_the_placements_and_taken_apart_again():
    assert script("mig=3g.71gb@4,4g.71gb@0") == (
        "# From NVIDIA's documentation; not run on MIG hardware here. No process may use the GPU.\n"
        "sudo nvidia-smi -i 0 -mig 1\n"
        "sudo nvidia-smi mig -i 0 -cgi 9:4,5:0 -C\n"
        "nvidia-smi mig -i 0 -lgi; nvidia-smi -L  # where each instance lies, and its UUID\n"
        'CUDA_VISIBLE_DEVICES="<UUID of 3g.71gb@4>" '
        "taskset -c 0 <your command for resnet50-imagenet64-bs128> &\n"
        'CUDA_VISIBLE_DEVICES="<UUID of 4g.71gb@0>" '
        "taskset -c 1-3 <your command for bert-base-finetune-bs16-loader2> &\n"
        "wait\n"
        "sudo nvidia-smi mig -i 0 -dci && sudo nvidia-smi mig -i 0 -dgi\n"
        "sudo nvidia-smi -i 0 -mig 0\n"
    )

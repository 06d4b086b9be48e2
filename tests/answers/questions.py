"""The questions: the words after ``advisor``; a name in braces is a file.

The answer of a question must not depend on the machine, its speed or its load. Searches for many
jobs are few, so that they are answered soon.
"""

PAIR = "resnet50-imagenet64-bs128 bert-base-finetune-bs16"
THREE = "cnn-cifar10-bs128@100 gru-speech-bs64 gcn-molecules-bs256@20"
BARE = "{bare_vision} {bare_language}"

HERE = (  # asked in this process
    # What is best for a few jobs.
    "recommend",
    f"recommend {PAIR}",
    f"recommend {PAIR} --objective throughput --pessimistic",
    f"recommend {PAIR} --power-cap 400",
    "recommend unet-cifar10-bs64@10 t5-small-pretrain-bs16 --objective energy --power-cap auto",
    "recommend lstm-wikitext-bs32 transformer-toy-bs32@20 mlp-toy-bs128 --host-cores 1",
    f"recommend {THREE} --objective throughput",
    f"recommend {THREE} --objective mean-completion",
    f"recommend {THREE} --objective energy",
    "recommend mlp-toy-bs128 transformer-toy-bs32 lstm-wikitext-bs32:2 --no-root",
    "recommend dlrm-29gb-bs128:4",
    "recommend cait_xxs24_224-cifar10-bs128:4 --objective throughput",
    "recommend densenet121-cifar10-bs64 swin_tiny_patch4_window7_224-imagenet-bs32@0.1 "
    "--protect densenet121-cifar10-bs64 --max-slowdown 0.2",
    "recommend --jobs {deadlines} --objective deadlines",
    "recommend --jobs {deadlines} --objective energy",
    "recommend --jobs {users}",
    "recommend --jobs {isolated}",
    "recommend --jobs {data_parallel}",
    "recommend --jobs {protected} --objective throughput",
    "recommend {script} resnet26-cifar10-bs128@20 --objective throughput",
    f"recommend {PAIR} --gpu h100-sxm-80gb",
    f"recommend {THREE} --gpu h100-sxm-80gb --objective energy",
    f"recommend {PAIR} --gpu a100-40gb",
    f"recommend {BARE} --gpu a100-40gb --objective throughput",
    # One way to share.
    f"predict {PAIR} --sharing naive",
    f"predict {PAIR} --sharing mps=43,57 --power-cap 450",
    f"predict {THREE} --sharing mps",
    "predict resnet50-imagenet64-bs64 bert-base-finetune-bs8 --sharing mps=60,40",  # other batches
    f"predict {PAIR} --sharing mig=3g.71gb,4g.71gb",
    f"predict {THREE} --sharing mig=4g.71gb[1,2]/mps=60,40+2g.35gb[3]",
    f"predict {PAIR} --sharing mig=7g.141gb/ci=3c[1]+4c[2]",
    f"predict {THREE} --sharing naive[1];mps[2,3]",
    f"predict {THREE} --sharing mps=30,40,30 --gpu h100-sxm-80gb",
    f"predict {PAIR} --sharing mig=3g.20gb,4g.20gb --gpu a100-40gb",
    f"predict {BARE} --sharing mps --gpu a100-40gb",
    f"compare naive mps=43,57 {PAIR}",
    f"compare mps mps {PAIR} --power-cap 400 --objective energy",
    # Over time.
    f"simulate {PAIR} --sharing mps=43,57 --price 2.5",
    f"simulate {PAIR}:2 --sharing mig=3g.71gb,4g.71gb --policy shortest-first",
    "simulate --trace-in {trace} --gpus 2 --policy best-fit",
    # Copies, trials, and what may join.
    "copies cnn-cifar10-bs128",
    "copies unet-cifar10-bs64 --gpu h100-sxm-80gb",
    "trials resnet26-cifar10-bs128 --epochs 5 --count 40",
    "trials resnet26-cifar10-bs128 --count 100 --gpus a100-40gb:2x4,h100-sxm-80gb:4 "
    "--host-cores 32",
    "admit mlp-toy-bs128 gcn-molecules-bs256 --running bert-base-finetune-bs16 "
    "--sharing mps --max-slowdown 0.5",
    "admit dlrm-1gb-bs128 --running resnet50-imagenet64-bs128,gru-speech-bs64 --max-slowdown 2",
    # Many jobs, several GPUs.
    f"recommend {PAIR}:2 --gpus 2",
    f"recommend {THREE} --gpus 2 --gpu h100-sxm-80gb --objective mean-completion",
    "recommend cnn-cifar10-bs128:10",
    # What starts a plan.
    f"export {PAIR} --sharing mps=43,57",
    f"export {THREE} --sharing mig=4g.71gb[1,2]/mps=60,40+2g.35gb[3]",
    f"recommend {THREE} --gpu a100-40gb",
    "recommend gpt2-medium-pretrain-bs4:2 --gpus 2",
    f"predict {THREE} --sharing serial[1];naive[2,3] --gpu h100-sxm-80gb",
    f"compare serial mps {THREE} --objective throughput --gpu h100-sxm-80gb",
    f"simulate {THREE} --sharing naive[1,2];mps[3]",
    f"predict {THREE} --sharing mps/2[3,1,2]",
    "trials cnn-cifar10-bs128 --steps 2000 --start-up 0 --gpu h100-sxm-80gb",
    "recommend nasnetalarge-imagenet-bs16-amp:4 --gpu a100-40gb",
    f"export {PAIR} --sharing mig=3g.71gb,4g.71gb --format mig-parted",
)

APART = (  # asked in a process of their own
    f"recommend {PAIR} --objective mean-completion",
    f"export {PAIR} --sharing naive --format slurm",
)

BARE_JOBS = {  # written by `advisor profile --from-numbers`
    "bare_vision": "--gpu a100-40gb --batch-size 128 --step-s 0.21 --memory-mib 9200 "
    "--power-w 310 --gpu-utilization 0.93 --memory-utilization 0.52 --examples-per-epoch 50000",
    "bare_language": "--gpu a100-40gb --batch-size 16 --step-s 0.08 --memory-mib 5300 "
    "--power-w 190 --gpu-utilization 0.61 --memory-utilization 0.2 --examples-per-epoch 30000",
}

"""Classes of kernels, by the names that cuDNN, cuBLAS, CUTLASS, CUB, ATen and Inductor give."""

import re

# The first that matches holds. Inductor names its kernels after how they are made and all that was
# fused: the former tells. Layout comes before conv, whose helpers say "convert"; conv before
# gemm, since convolutions are often implicit matrix products; loss and norm before reduce.
_RULES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("elementwise", r"^triton_(poi|for)_"),
        ("reduce", r"^triton_(red|per|mix|split_scan)_"),
        ("gemm", r"^triton_(tem|mm|bmm)"),
        ("optimizer", r"multi_tensor_apply|fused_?(adam|sgd|lamb)|amp_(update_scale|non_finite)"),
        ("recurrent", r"rnn|lstm|gru_"),
        ("attention", r"flash_?(fwd|bwd|fprop|bprop|attention)|fmha|attention|sdpa"),
        ("softmax", r"softmax"),
        ("loss", r"nll_loss|cross_entropy"),
        ("norm", r"batch_?norm|layer_?norm|group_?norm|rms_?norm|\bbn_|rowwisemoments|gammabeta"
                 r"|fusedparams|internalgradients"),
        ("pooling", r"pool"),
        ("sort", r"sort|thrust.*unique|adjacent_difference"),
        ("embedding", r"embedding|index(?!ed)|gather|scatter|krn_partial|grad_weight_bags"),
        ("layout", r"nchwtonhwc|nhwctonchw|converttensor|transpose|permute|tensor_?reorder"),
        ("conv", r"conv(?!ert)|[fdw]grad|fprop|bprop|winograd|\bfft|im2col|col2im|implicit"),
        ("gemm", r"gemm|gemv|cutlass|cublas|splitk|nvjet|xmma|dot_kernel|\bmma"),
        ("reduce", r"reduce|scan|\bsum_"),
        ("elementwise", r"elementwise|catarray|dropout|fill|copy|distribution|random|triu_tril"
                        r"|arange|unrolled|pointwise|dot_product|axpy|scal_"),
    )
)  # fmt: skip

# Names that say what they do only in their template arguments.
_WRAPPERS = re.compile(r"cutlass|xmma|cudnn::.*kernel\d?<|cublas|thrust|cub::|device_kernel", re.I)


def kernel_class(name: str) -> str:
    """The class of the kernel called `name`, demangled; ``"other"`` where nothing is known."""
    told = name if _WRAPPERS.search(name) else name.partition("<")[0]
    return next((each for each, pattern in _RULES if pattern.search(told)), "other")

"""Names of kernels as torch's profiler shows them, and what they do."""

import pytest

from advisor.measure.solo.chrome_trace import kernel_class

NAMES = {
    "conv": [
        "sm90_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn",
        "sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_kernel_cudnn",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_128x64_16x4_nhwc_align4>(cutlass_tensorop_s1688wgrad_optimized_tf32_128x64_16x4_nhwc_align4::Params)",  # noqa: E501
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>",
        "void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>",
        "void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*, int)",
        "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int>",
    ],
    "gemm": [
        "ampere_sgemm_128x64_nn",
        "triton_tem_fused_addmm_relu_4",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute",
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4>(Params)",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true>",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>>>",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd>",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x64",
    ],
    "recurrent": [
        "void RNN_blockPersist_fp_LSTM<float, float, float, 512, 2, 4, 6>",
        "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>",
        "void GRU_elementWise_bp1<float, float, float, (cudnnRNNBiasMode_t)2>",
    ],
    "norm": [
        "void at::native::(anonymous namespace)::ComputeFusedParamsCUDAKernel<float>",
        "void at::native::(anonymous namespace)::ComputeInternalGradientsCUDAKernel<float>",
        "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>",
        "void cudnn::batchnorm_fwtr_nhwc_semiPersist<__nv_bfloat16, float, float, 512>",
        "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float>",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>",
        "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float>",
    ],
    "elementwise": [
        "triton_poi_fused_convolution_relu_0",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<softmax>>",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<float>",
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, 1>",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<f>",
    ],
    "reduce": [
        "triton_per_fused_native_layer_norm_backward_12",
        "triton_red_fused__native_batch_norm_legit_functional_3",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>",
        "void at_cuda_detail::cub::DeviceReduceSingleTileKernel<Policy>",
    ],
    "softmax": [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>",
        "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float>",
    ],
    "loss": ["void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<f>"],
    "pooling": [
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float>",
        "void at::native::(anonymous namespace)::adaptive_average_pool<float>",
    ],
    "embedding": [
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned>",
        "void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float>",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)",
        "void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long, unsigned int>",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter>",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float>",
    ],
    "sort": [
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy900, false, long, int>"
    ],
    "optimizer": [
        "void at::native::amp_update_scale_cuda_kernel(float*, int*, float const*, double)",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>>",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
    ],
    "layout": [
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, cudnnKernelDataType>",
        "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, float, true, false>",
        "void convertTensor_kernel<float, float, float, 0>(float, float const*, TensorStruct)",
    ],
    "other": ["void some_kernel_of_a_user<float>(float*)"],
}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for kind, names in NAMES.items() for name in names]
)
def test_a_kernels_name_says_what_it_does(name, kind):
    assert kernel_class(name) == kind

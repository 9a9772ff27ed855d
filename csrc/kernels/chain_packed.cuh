// chain, good: 16-byte packs, several in flight a thread, and no more instructions than fit.
//
// At the rate of memory an SM has 42 issue slots for each bfloat16 element, so neighbouring steps
// that are affine are one multiply-add here, and constants are folded where a finite value or a
// NaN passes: 1.5 and 1.25 into the terms before them, the halves of the sigmoid's argument and of
// the result likewise. A fold that changed what an infinity becomes would not be the same op.
#pragma once

#include "pointwise.cuh"
#include "special_functions.cuh"

template <typename T>
struct ChainPackedSteps {
  __device__ static float apply(float x, float residual, float bias) {
    using Functions = FastFunctions<T>;
    float v = (x + bias) * 0.75f + residual;  // add_bias scale_in add_residual
    v = clamp_nan(v, 1.5f);                   // clamp_in
    float u = v * v;                          // gelu_square
    u = u * 0.0356774081f + 0.7978845608f;    // gelu_cubic gelu_linear
    u = Functions::tanh(u * v);               // gelu_argument gelu_tanh
    u = u * 0.75f + 0.75f;                    // gelu_half gelu_centre
    v = v * u - 0.25f;                        // gelu rescale recentre
    u = v * 0.851f + bias * 0.5f;             // gate_scale gate_bias
    u = Functions::sigmoid_of_twice(u);       // gate_sigmoid
    v = v * u + residual;                     // gate skip
    u = max_nan(v, 0.0f);                     // relu
    v = u * u * 0.125f + v;                   // relu_square relu_scale add_relu
    v = clamp_nan(v, 2.0f);                   // cap
    u = v * v * -0.078125f + 1.25f;           // bend_square bend_slope bend_one
    v = v * u + (residual * 0.3f - 0.125f);   // bend dequant_scale dequant_zero blend_weight blend
    v = max_nan(v, v * 0.1f);                 // leak_slope leak
    v = v * 0.4f + 0.025f;                    // norm_scale norm_shift
    return v * bias + v + 0.0625f;            // bias_gain add_gain out_scale out_shift
  }
};

template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
__global__ void __launch_bounds__(kThreads, kPackedResident<kPacks, kBiasPacks> / kThreads)
    chain_packed_kernel(const T* __restrict__ x,         // [count]
                        const T* __restrict__ residual,  // [count]
                        const T* __restrict__ bias,      // [cols]
                        T* __restrict__ out,             // [count]
                        int64 count, int64 cols, unsigned long long reciprocal, int64 stride) {
  pointwise_packed<ChainPackedSteps<T>, T, kThreads, kPacks, kVector, kBiasPacks>(
      x, residual, bias, out, count, cols, reciprocal, stride);
}

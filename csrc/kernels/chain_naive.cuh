// chain, first draft: one thread an element, the forty steps as they are written, CUDA's own
// functions.
#pragma once

#include "pointwise_naive.cuh"

struct ChainSteps {
  __device__ static float apply(float x, float residual, float bias) {
    float v = x + bias;                    // add_bias
    v = v * 0.75f;                         // scale_in
    v = v + residual;                      // add_residual
    v = min_nan(max_nan(v, -1.5f), 1.5f);  // clamp_in
    float u = v * v;                       // gelu_square
    u = u * 0.0356774081f;                 // gelu_cubic
    u = u + 0.7978845608f;                 // gelu_linear
    u = u * v;                             // gelu_argument
    u = tanhf(u);                          // gelu_tanh
    u = u * 0.5f;                          // gelu_half
    u = u + 0.5f;                          // gelu_centre
    v = v * u;                             // gelu
    v = v * 1.5f;                          // rescale
    v = v - 0.25f;                         // recentre
    u = v * 1.702f;                        // gate_scale
    u = u + bias;                          // gate_bias
    u = sigmoid_exact(u);                  // gate_sigmoid
    v = v * u;                             // gate
    v = v + residual;                      // skip
    u = max_nan(v, 0.0f);                  // relu
    u = u * u;                             // relu_square
    u = u * 0.125f;                        // relu_scale
    v = v + u;                             // add_relu
    v = min_nan(max_nan(v, -2.0f), 2.0f);  // cap
    u = v * v;                             // bend_square
    u = u * -0.0625f;                      // bend_slope
    u = u + 1.0f;                          // bend_one
    v = v * u;                             // bend
    v = v * 1.25f;                         // dequant_scale
    v = v - 0.125f;                        // dequant_zero
    u = residual * 0.3f;                   // blend_weight
    v = v + u;                             // blend
    u = v * 0.1f;                          // leak_slope
    v = max_nan(v, u);                     // leak
    v = v * 0.8f;                          // norm_scale
    v = v + 0.05f;                         // norm_shift
    u = v * bias;                          // bias_gain
    v = v + u;                             // add_gain
    v = v * 0.5f;                          // out_scale
    return v + 0.0625f;                    // out_shift
  }
};

template <typename T>
__global__ void chain_naive_kernel(const T* __restrict__ x,         // [count]
                                   const T* __restrict__ residual,  // [count]
                                   const T* __restrict__ bias,      // [cols]
                                   T* __restrict__ out,             // [count]
                                   int64 count, int64 cols) {
  pointwise_naive<ChainSteps>(x, residual, bias, out, count, cols);
}

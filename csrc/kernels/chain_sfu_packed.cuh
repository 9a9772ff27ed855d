// chain_sfu, good: 16-byte packs, several in flight a thread, and half the special functions: the
// last rung, past the ceiling of one result a step.
//
// The sixteen special functions are what binds this op, so they are what is cut. A sigmoid after a
// tanh and a gain of 2 is sigmoid(2 t) = 0.5 + 0.5 tanh(t) with |t| <= 1, where a short odd
// polynomial is tanh. It runs in the multiply-add pipe, which is otherwise idle, beside the other
// eight in the special-function unit; scale and shift of the next round go into its coefficients.
#pragma once

#include "pointwise.cuh"
#include "special_functions.cuh"

template <typename T>
struct ChainSfuPackedSteps {
  __device__ static float apply(float x, float residual, float bias) {
    using Functions = FastFunctions<T>;
    float v = x * 0.75f + bias;                            // scale_1 shift_1
    v = Functions::tanh(v);                                // tanh_1
    v = Functions::tanh_small(v, 2.0f, 0.5f);              // gain_1 sigmoid_1 scale_2 shift_2
    v = Functions::tanh(v);                                // tanh_2
    v = Functions::tanh_small(v, 2.0f, 0.5f);              // gain_2 sigmoid_2 scale_3 shift_3
    v = Functions::tanh(v);                                // tanh_3
    v = Functions::tanh_small(v, 2.0f, 0.5f);              // gain_3 sigmoid_3 scale_4 shift_4
    v = Functions::tanh(v);                                // tanh_4
    v = Functions::tanh_small(v, -1.0f, residual - 1.0f);  // gain_4 sigmoid_4 scale_5 shift_5
    v = Functions::tanh(v);                                // tanh_5
    v = Functions::tanh_small(v, 2.0f, 0.5f);              // gain_5 sigmoid_5 scale_6 shift_6
    v = Functions::tanh(v);                                // tanh_6
    v = Functions::tanh_small(v, 2.0f, 0.5f);              // gain_6 sigmoid_6 scale_7 shift_7
    v = Functions::tanh(v);                                // tanh_7
    v = Functions::tanh_small(v, 2.0f, 0.5f);              // gain_7 sigmoid_7 scale_8 shift_8
    v = Functions::tanh(v);                                // tanh_8
    return Functions::tanh_small(v, 0.5f, 0.5f);           // gain_8 sigmoid_8
  }
};

template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
__global__ void __launch_bounds__(kThreads, kPackedResident<kPacks, kBiasPacks> / kThreads)
    chain_sfu_packed_kernel(const T* __restrict__ x,         // [count]
                            const T* __restrict__ residual,  // [count]
                            const T* __restrict__ bias,      // [cols]
                            T* __restrict__ out,             // [count]
                            int64 count, int64 cols, unsigned long long reciprocal, int64 stride) {
  pointwise_packed<ChainSfuPackedSteps<T>, T, kThreads, kPacks, kVector, kBiasPacks>(
      x, residual, bias, out, count, cols, reciprocal, stride);
}

// The forty steps of chain_sfu as they are written: what its drafts and rungs share. They differ in
// `Functions`, a class with `static float tanh(float)` and `static float sigmoid(float)`.
#pragma once

template <typename Functions>
struct ChainSfuSteps {
  __device__ static float apply(float x, float residual, float bias) {
    float v = x * 0.75f;           // scale_1
    v = v + bias;                  // shift_1
    v = Functions::tanh(v);        // tanh_1
    v = v * 2.0f;                  // gain_1
    v = Functions::sigmoid(v);     // sigmoid_1
    v = v * 4.0f;                  // scale_2
    v = v - 1.5f;                  // shift_2
    v = Functions::tanh(v);        // tanh_2
    v = v * 2.0f;                  // gain_2
    v = Functions::sigmoid(v);     // sigmoid_2
    v = v * 4.0f;                  // scale_3
    v = v - 1.5f;                  // shift_3
    v = Functions::tanh(v);        // tanh_3
    v = v * 2.0f;                  // gain_3
    v = Functions::sigmoid(v);     // sigmoid_3
    v = v * 4.0f;                  // scale_4
    v = v - 1.5f;                  // shift_4
    v = Functions::tanh(v);        // tanh_4
    v = v * 2.0f;                  // gain_4
    v = Functions::sigmoid(v);     // sigmoid_4
    v = v * -2.0f;                 // scale_5
    v = v + residual;              // shift_5
    v = Functions::tanh(v);        // tanh_5
    v = v * 2.0f;                  // gain_5
    v = Functions::sigmoid(v);     // sigmoid_5
    v = v * 4.0f;                  // scale_6
    v = v - 1.5f;                  // shift_6
    v = Functions::tanh(v);        // tanh_6
    v = v * 2.0f;                  // gain_6
    v = Functions::sigmoid(v);     // sigmoid_6
    v = v * 4.0f;                  // scale_7
    v = v - 1.5f;                  // shift_7
    v = Functions::tanh(v);        // tanh_7
    v = v * 2.0f;                  // gain_7
    v = Functions::sigmoid(v);     // sigmoid_7
    v = v * 4.0f;                  // scale_8
    v = v - 1.5f;                  // shift_8
    v = Functions::tanh(v);        // tanh_8
    v = v * 2.0f;                  // gain_8
    return Functions::sigmoid(v);  // sigmoid_8
  }
};

// The rows of a weight in tiles that differ by one row at most: any number of blocks gets the same
// work, whatever the number of rows, since only rows that exist are loaded.
#pragma once

#include "scalars.cuh"

// rows = tiles * each + longer: the first `longer` tiles have one row more. Divided on the host.
struct EvenTiles {
  int64 tiles;
  int64 each;
  int64 longer;

  __device__ __forceinline__ int64 first(int64 tile) const {
    return tile * each + min(tile, longer);
  }
  __device__ __forceinline__ int rows(int64 tile) const {
    return static_cast<int>(each) + (tile < longer);
  }
};
